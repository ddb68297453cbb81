"""Folders that nobody but this user and root can have changed, as the library's cache/files/trusted_directory.h has
them (docs/security.md).

A folder is a descriptor, which the ExitStack that is given closes. What lies in it is opened below it, without
following links, and checked through its own descriptor; None stands for what is missing or does not pass.
"""

import contextlib
import errno
import os
import stat


def open_top(stack, path):
    """Links are followed: what they lead to is checked."""
    return _open(stack, os.fspath(path), os.O_DIRECTORY, None)


def enter(stack, folder, name):
    return _open(stack, name, os.O_DIRECTORY | os.O_NOFOLLOW, folder)


def open_file(stack, folder, name):
    """For reading; it need not be a regular file."""
    return _open(stack, name, os.O_NOFOLLOW, folder)


def make_and_enter(stack, folder, name):
    """Made first where it is missing: for this user, or for those of a trusted group that may write around it."""
    is_new = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
        is_new = True
    opened = enter(stack, folder, name)
    around = os.fstat(folder)
    if opened is not None and is_new and _is_shared(around):
        os.fchmod(opened, 0o770 | around.st_mode & stat.S_ISGID)
    return opened


def make_private(path):
    """Makes a folder, and those above it that are missing, for this user alone."""
    if path.is_dir():
        return
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def held_path(folder):
    """For calls that take a path: good while the descriptor is open."""
    return f"/proc/self/fd/{folder}"


def _open(stack, name, flags, folder):
    try:
        opened = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):  # the last: not in this locale
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link
            return None
        raise
    stack.callback(os.close, opened)
    return opened if _passes(os.fstat(opened), None if folder is None else os.fstat(folder)) else None


def _passes(found, around):
    others = stat.S_IWOTH if _trusts_groups() else stat.S_IWOTH | stat.S_IWGRP
    if found.st_mode & others:
        return False
    is_of_member = around is not None and _is_shared(around) and found.st_gid == around.st_gid
    return found.st_uid in (0, os.geteuid()) or is_of_member


def _is_shared(folder):
    return _trusts_groups() and bool(folder.st_mode & stat.S_IWGRP)


def _trusts_groups():
    return os.environ.get("DORAJIT_TRUST_GROUP") == "1"
