"""The gateway: takes frames from devices over HTTP, mixes the reports of many, and confirms what a broker has.

It keeps nothing: what it confirmed is with the broker, what it did not confirm is still with the device.
"""
