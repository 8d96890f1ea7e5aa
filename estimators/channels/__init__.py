"""Exact channels from true value to answer, chains of them, and the kernels that degrade one into another.

Probabilities, costs and closed forms only: what is estimated from answers lives in `inference`.
"""
