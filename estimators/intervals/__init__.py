"""Intervals: at one look, for all values at once, always valid, at checkpoints.

Server side only; what an interval is for (alerts, pages) is decided elsewhere.
"""
