"""Row norms of weights, and the gains computed from them."""
