"""Of all tests of commands."""

import pytest

from tests.cli.kit import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)
