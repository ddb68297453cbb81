"""A layer with an adapter, as one autograd node or composed of several calls."""
