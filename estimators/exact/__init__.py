"""Exact numbers: integers to floats and back, random words behind one protocol, lazy exact draws.

Nothing here knows a mechanism or a survey; no module here imports another room.
"""
