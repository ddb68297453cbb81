"""The library's operations: their table, and the routes by which a call reaches a kernel."""
