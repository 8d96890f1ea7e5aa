"""The command line: one file per command, found by its name.

A command parses, calls a room and prints; what it does is done elsewhere.
"""
