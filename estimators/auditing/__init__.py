"""Attacks on recorded answers whose true values are known: lower bounds on epsilon, guesses, tests of declared laws.

Only an audit uses it; nothing that counts or estimates may import it.
"""
