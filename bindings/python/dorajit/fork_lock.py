"""Locks for processes that may be forked."""

import os
import threading


def make(kind=threading.Lock):
    """A lock of this kind that is released in a forked process, where the thread that held it may not exist."""
    made = kind()
    # The method that Python's standard library uses for its own locks; there is no public one.
    os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made
