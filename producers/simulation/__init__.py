"""Simulated fleets: devices as arrays, scenarios, and the truth that only a simulation knows.

Nothing that counts or estimates may import this room.
"""
