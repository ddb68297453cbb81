"""Row norms of weights, and the gains that are made of them."""
