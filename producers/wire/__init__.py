"""The wire format: frames by version, their layout, shards and partitions, and the transports of messages.

This room owns the format and imports no survey file and no store.
"""
