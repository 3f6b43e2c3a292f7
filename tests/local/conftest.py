"""Fixtures of the local stack's tests: nothing that they start may outlive them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordlib.local.broker import Broker
from coordlib.local.jars import ensure_jars
from coordlib.local.progress import silent
from coordlib.local.stack import Stack


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that was not started yet, in the home of somebody whose name has an accent."""
    broker = Broker(tmp_path / "José's 東 broker", ensure_jars(silent).broker)
    yield broker
    broker.stop()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack that was not started yet."""
    stack = Stack(tmp_path / "stack", prefix="trial")
    yield stack
    stack.down(progress=silent)
