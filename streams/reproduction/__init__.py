"""What `thaw reproduce` reads and writes: published numbers, data sets of packages, pictures and the gallery.

The experiments themselves are in `estimators/reproduction`; only the command line uses this room.
"""
