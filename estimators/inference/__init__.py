"""From counts to estimates: inversion, likelihood, pooling over rungs, decoding, labelled views.

Server side only (scipy); no mechanism is named here, and nothing here may be imported by a device.
"""
