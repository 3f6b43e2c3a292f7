"""A clock of one module alone."""

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest


def give(monkeypatch: pytest.MonkeyPatch, module: str, **functions: Callable[..., object]) -> None:
    """Replace functions of `time` as `module` sees them.

    `time` itself is every thread's: one that an earlier test left would run a test's stand-in of
    `sleep` too early, or wait for ever by a clock that stands still.
    """
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(**{**vars(time), **functions}))
