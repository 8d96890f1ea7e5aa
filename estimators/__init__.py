"""Mechanisms, tallies and estimators: pure functions of integers and arrays; no clock, no I/O, no global randomness."""
