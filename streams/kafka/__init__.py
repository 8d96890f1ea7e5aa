"""Kafka as the collector uses it: topics, publisher, reader.

The worker's own consumer lives in `worker`; nothing here knows the store.
"""
