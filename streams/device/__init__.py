"""A device as a program: `thaw device run`. Nothing of the collector: no Kafka, no Redis.

What it does is in `producers.device.program`; here are files, commands, signals and certificates.
"""
