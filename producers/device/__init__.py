"""The agent on a device: ledger, outbox, budget.

Needs numpy and msgspec alone; nothing simulated and nothing of the server may be imported here.
"""
