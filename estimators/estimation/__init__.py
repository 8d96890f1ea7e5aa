"""The server side of every mechanism: from a tally to estimates and always-valid bounds, found by the same name.

May use scipy; never imported by a device; draws nothing and has no access to simulated truth.
"""
