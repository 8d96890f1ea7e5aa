"""Windows after counting: recompute, estimate records, alert bounds, estimate history, latency.

Reads tallies through the store's contract; knows nothing of Kafka's records or of frames.
"""
