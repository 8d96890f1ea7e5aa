"""Services started on this machine for the demo and the tests: Kafka, Redis, supervised child processes.

Only the command line and tests may import this room.
"""
