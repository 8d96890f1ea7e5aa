"""The worker process: Faust driver, applier, fold, compiled kernels, table of latest answers, dead letters.

The only room that imports Faust and numba.
"""
