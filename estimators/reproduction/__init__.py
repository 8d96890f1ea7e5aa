"""Experiments of the five papers, and some that the papers lack: each gives numbers with computed verdicts, and charts.

Published numbers and data sets are arguments; reading and drawing them is work of `streams/reproduction`.
"""
