"""The server side of every mechanism: from a tally to estimates and always-valid bounds, found by the same word.

May use scipy; never imported by a device, and knows nothing of randomness or simulated truth.
"""
