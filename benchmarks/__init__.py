"""A package, so that layers.py finds its modules before a package of this name that is installed somewhere."""
