"""Tools that training does not use: the command line program and the cache."""
