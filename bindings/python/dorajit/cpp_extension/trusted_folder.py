"""Folders that only this user and root can have changed, with the rules of the library's
cache/files/trusted_directory.h (docs/security.md).

A folder is a descriptor, which the given ExitStack closes. Files and folders in it are opened relative to it, without
following links, and checked through their own descriptors. The functions return None for those that are missing or
fail the checks.
"""

import contextlib
import errno
import os
import stat


def open_top(stack, path):
    """Opens a folder by its path. Links are followed; their targets are checked."""
    return _open(stack, os.fspath(path), os.O_DIRECTORY, None)


def enter(stack, folder, name):
    return _open(stack, name, os.O_DIRECTORY | os.O_NOFOLLOW, folder)


def open_file(stack, folder, name):
    """Opens a file for reading; it may be of any type."""
    return _open(stack, name, os.O_NOFOLLOW, folder)


def make_and_enter(stack, folder, name):
    """Opens a folder, which is created if it is missing: private to this user, or group-writable if it is in a folder
    that a trusted group may write."""
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
    """Creates a folder and its missing parents, private to this user."""
    if path.is_dir():
        return
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def held_path(folder):
    """A path of the open folder, for functions that take no descriptor; valid while it is open."""
    return f"/proc/self/fd/{folder}"


def _open(stack, name, flags, folder):
    try:
        opened = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):  # the last: not representable in the locale
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
