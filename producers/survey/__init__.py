"""Survey files: their shape, loading, messages, check, folder, schedules, windows, alert rules.

The meaning of a file is defined here only; nothing here sends or counts.
"""
