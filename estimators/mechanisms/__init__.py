"""One file per mechanism or close family: its specification and its randomizer, found by the name in survey files.

Device code: numpy and the standard library alone; no estimates, intervals or scipy.
"""
