"""A pytest plugin for PEFT's own tests: dorajit.patch_peft() is in force, and tests that run DoRA layers
fail unless kernels served them or the patch says why it left them to PEFT.

Tests that need a model of the Hugging Face hub, or a package in ABSENT that is not installed, are
skipped where they ask for it, and are counted.
"""

import collections
import socket

import absent
import pytest

_HUB_ERRORS = frozenset({"HubIsNotAskedError", "OfflineModeIsEnabled", "LocalEntryNotFoundError"})


class NativePath:
    """Counts how the DoRA layers of one test session ran."""

    def __init__(self, patched):
        from dorajit import testing
        self.counts, self.patched, self.forwards = testing.launch_counts, patched, 0
        self.tally = collections.Counter()
        self.patch = None

    def begin(self):
        import dorajit
        if self.patched:
            self.patch = dorajit.patch_peft(strict=True)
        from peft.tuners.lora import variants
        for owner in (variants.DoraLinearVariant, variants.DoraEmbeddingVariant, variants._DoraConvNdVariant):
            owner.forward = staticmethod(self._counting(owner.forward))

    def _counting(self, forward):
        def counted(*args, **kwargs):
            self.forwards += 1
            return forward(*args, **kwargs)
        return counted

    def _seen(self):
        return (self.forwards, sum(self.counts().values()), sum(self.patch.declined.values()) if self.patch else 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        before = self._seen()
        try:
            result = yield
        except Exception as error:
            reason = _needs_hub(error)
            if reason is None:
                raise
            self.tally["hub"] += 1
            pytest.skip(reason)
        forwards, launches, declined = (now - then for now, then in zip(self._seen(), before))
        if forwards:
            self.tally["dora"] += 1
            self.tally["native" if launches else "declined" if declined else "neither"] += 1
            if self.patched and not launches and not declined:
                pytest.fail(f"{item.name}: {forwards} DoRA layers ran, no kernel was launched and "
                            "nothing was declined")
            if not self.patched and launches:
                pytest.fail(f"{item.name}: kernels were launched without the patch")
        return result

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.write_line(
            "dorajit: {dora} tests ran DoRA layers: {native} by kernels, {declined} left to PEFT, {neither} "
            "neither; {hub} stopped at a model of the hub".format_map(self.tally | _NONE))
        for reason, calls in (self.patch.declined if self.patch else {}).items():
            terminalreporter.write_line(f"dorajit: left to PEFT, {calls} calls: {reason}")

    def pytest_sessionfinish(self, session):
        if self.patched and not self.tally["native"] and not session.config.option.collectonly:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


_NONE = collections.Counter(dict.fromkeys(("dora", "native", "declined", "neither", "hub"), 0))


def _needs_hub(error):
    """The reason if an error means that a test needs the network, or None."""
    while error is not None:
        if type(error).__name__ in _HUB_ERRORS or "huggingface.co" in str(error):
            return "needs a model of the Hugging Face hub"
        error = error.__cause__ or error.__context__
    return None


class HubIsNotAskedError(Exception):
    """An error class for which the hub's client does not retry, which would take most of a minute."""


def _refuse_the_hub():
    look_up = socket.getaddrinfo
    def refusing(host, *args, **kwargs):
        if "huggingface.co" in str(host) or str(host).endswith("hf.co"):
            raise HubIsNotAskedError(host)
        return look_up(host, *args, **kwargs)
    socket.getaddrinfo = refusing


def pytest_addoption(parser):
    parser.addoption("--unpatched", action="store_true", help="run PEFT as it is, for comparison")


def pytest_configure(config):
    native = NativePath(not config.option.unpatched)
    native.begin()
    _refuse_the_hub()
    config.pluginmanager.register(native, "dorajit-native-path")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    with absent.placeholders():
        return (yield)
