"""Terminal views: how results look on a terminal.

Rendering only: no store, no broker, no clock.
"""
