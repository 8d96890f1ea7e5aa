"""Survey files: their shape, loading, messages, check, folder, schedules, windows, alert rules.

What a file means is decided here and nowhere else; nothing here sends or counts.
"""
