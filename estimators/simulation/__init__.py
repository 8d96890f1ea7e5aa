"""True values for simulated fleets, their true quantities, and tallies of whole fleets without wire or store.

For simulations, planning and tests only: nothing that counts real answers may import it.
"""
