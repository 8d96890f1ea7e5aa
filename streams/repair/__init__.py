"""Tools for an operator: rebuild the store from Kafka, inspect and replay dead letters.

They run beside working workers and follow the same rules; nothing imports them but the command line.
"""
