"""Compiles ahead what a model will run: its problems are recorded, not guessed (docs/prewarming.md)."""
