"""The dealer: hands out the cards of decks, each once, to devices that answer with them.

It never sees answers, and imports nothing of the collector: together they could read values.
"""
