"""Locks for a process that may be forked."""

import os
import threading


def make(kind=threading.Lock):
    """A lock, or a threading.RLock, that is open in a forked process: who held it may not be there."""
    made = kind()
    # What Python's own library does with its locks; there is no public way.
    os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made
