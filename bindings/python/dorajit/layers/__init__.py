"""A layer with an adapter: as one node of autograd's graph, and composed of several calls."""
