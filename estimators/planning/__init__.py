"""Before a survey starts: widths, sample sizes, costs, errors, lying devices, which kernels exist.

Closed forms and linear programs at assumed shares; nothing here runs on a device or in a worker.
"""
