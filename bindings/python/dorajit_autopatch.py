"""Patches PEFT in each process that imports it, if DORAJIT_PATCH_PEFT asks for it (docs/training.md, "Without a line of
code").

Python's `site` runs install() at the start of every interpreter: `dorajit.pth`, and from Python 3.15 on `dorajit.start`.
So it imports neither the package nor PyTorch before PEFT itself has been imported, and never fails.
"""

import _thread
import os
import sys

VARIABLE = "DORAJIT_PATCH_PEFT"
_OFF = ("0", "false")
_ON = ("1", "true")
_is_patched = False


def is_wanted(unset="1"):
    """Whether the variable allows a patch; `unset` is its value if it is not set."""
    return (os.environ.get(VARIABLE, "").strip().lower() or unset) not in _OFF


def install():
    """Waits for the import of PEFT, if the variable is set. A second call does nothing."""
    if not is_wanted("0") or any(type(one) is _Finder for one in sys.meta_path):
        return
    if "peft" in sys.modules:
        patch()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds PEFT as the other finders do. It stays until PEFT has been executed: many packages look for its specification
    without importing it."""

    _searching = set()  # threads; a finder of another package may ask this one, too

    def find_spec(self, name, path=None, target=None):
        thread = _thread.get_ident()
        if name != "peft" or thread in self._searching:
            return None
        self._searching.add(thread)
        try:
            for other in sys.meta_path:
                find = getattr(other, "find_spec", None)
                spec = None if other is self or find is None else find(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, self)
                    return spec
            return None
        finally:
            self._searching.discard(thread)


class _Loader:
    """The loader of PEFT, which patches it after its execution."""

    def __init__(self, original, finder):
        self._original, self._finder = original, finder

    def __getattr__(self, name):
        if name == "_original":  # of an instance that is being copied
            raise AttributeError(name)
        return getattr(self._original, name)

    def create_module(self, spec):
        return self._original.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._original
        self._original.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            patch()


def patch():
    """Calls dorajit.patch_peft once in a process, with the variable's arguments, unless that forbids it. A training run
    goes on without the patch if that fails: the reason is logged, not warned of, because filters may turn warnings into
    errors."""
    global _is_patched
    if _is_patched or not is_wanted():
        return
    _is_patched = True
    text = os.environ.get(VARIABLE, "").strip() or "1"
    try:
        arguments = _arguments(text)
        import dorajit
        dorajit.patch_peft(**arguments)
    except Exception as error:
        import logging
        logging.getLogger("dorajit").warning("PEFT is not patched, although %s is %r: %s: %s", VARIABLE, text,
                                             type(error).__name__, error)


def _arguments(text):
    """The arguments of patch_peft: "1", or names and values as in "dropout=low_rank,low_rank_dtype=base"."""
    names = "dropout", "low_rank_dtype"
    found = {}
    for item in text.split(","):
        name, _, value = (one.strip().lower() for one in item.partition("="))
        if name in names:
            found[name] = value
        elif item.strip().lower() not in _ON:
            raise ValueError(f"{item.strip()!r} is not a valid item; give 1, or {' or '.join(names)} with a value, separated "
                             "by commas")
    return found
