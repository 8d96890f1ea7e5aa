"""The exporter process: reads Redis, serves metrics, the page and the API.

Loads no numba, no Kafka client and no Faust; it never writes to the store.
"""
