"""How reports travel: frames by version, their layout, and the transports that carry messages.

This room owns the format; it knows no survey file and no store.
"""
