"""What only reproduces or attacks: experiments, attacks and baselines of the five papers.

Only the command line and tests may import this room.
"""
