"""The store: its contract, its implementation in Redis, heartbeats.

Imports nothing of the worker; nothing outside this room knows a Redis key.
"""
