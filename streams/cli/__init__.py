"""The command line: one file per command, found by its name.

A command parses its arguments, calls another room and prints the result; no other work is done here.
"""
