"""Terminal views: how results look on a terminal, and what commands share when they read arguments.

Rendering only: no broker, no writes to the store.
"""
