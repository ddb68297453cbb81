"""The operations of the library: their table, and the routes by which a call reaches a kernel."""
