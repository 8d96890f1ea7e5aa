"""The market: sells the answers of windows at a level, later at higher ones, and keeps the books.

Buyers below the level that a device has released get answers that are drawn from its own by the kernels of its chain,
each level once for each report, so that all buyers together learn what the highest level tells. What was drawn is in
Redis beside the counts before anybody sees it, and in the books with the sale.
"""
