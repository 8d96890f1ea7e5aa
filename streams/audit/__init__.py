"""`thaw audit`: real devices with known values are recorded, attacked and killed, and held against their ledgers.

Only the command line uses it.
"""
