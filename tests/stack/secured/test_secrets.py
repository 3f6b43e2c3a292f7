"""Passwords stand in files of their owner alone, and nowhere else."""

import json
import stat
from pathlib import Path

import psutil
import pytest

from coordlib.local.processes import belonging_to
from coordlib.local.stack import Stack

pytestmark = pytest.mark.stack

#: Where a password may stand, below the stack's folder.
PLACES = ("secrets/passwords.json", "secrets/store-password", "broker/server.properties")


def passwords(stack: Stack) -> dict[str, bytes]:
    """By user; the stores' own too."""
    folder = stack.home / "secrets"
    found = json.loads((folder / "passwords.json").read_text())
    found["store"] = (folder / "store-password").read_text()
    return {user: password.encode() for user, password in found.items()}


def files(stack: Stack) -> list[Path]:
    found = [path for path in stack.home.rglob("*") if path.is_file() and not path.is_symlink()]
    # Kafka reserves 10 MiB for each, and fills them with numbers.
    return [path for path in found if path.suffix not in (".index", ".timeindex")]


def test_a_password_is_in_no_file_but_those_that_are_made_for_it(secured_stack: Stack) -> None:
    """Logs, checkpoint, status and the broker's segments are copied, sent and read by others."""
    all_of_them = passwords(secured_stack)
    with_one = set()
    for path in files(secured_stack):
        content = path.read_bytes()
        if any(password in content for password in all_of_them.values()):
            with_one.add(path.relative_to(secured_stack.home))

    clients = {path for path in with_one if path.parts[0] == "clients"}
    assert {str(path) for path in with_one - clients} == set(PLACES)
    assert {path.stem for path in clients} >= all_of_them.keys() - {"broker", "store"}


def test_files_with_secrets_are_their_owners_alone(secured_stack: Stack) -> None:
    for name in ("secrets", "clients"):
        folder = secured_stack.home / name
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for path in folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((secured_stack.home / PLACES[2]).stat().st_mode) == 0o600


def test_no_list_of_processes_shows_a_password(secured_stack: Stack) -> None:
    """Everybody on the machine can read the arguments of all programs."""
    programs = belonging_to(secured_stack.home, "job") + belonging_to(secured_stack.home, "broker")
    shown = "\n".join(" ".join(psutil.Process(each.pid).cmdline()) for each in programs)

    assert "job.properties" in shown
    assert "kafka.Kafka" in shown
    assert [u for u, secret in passwords(secured_stack).items() if secret.decode() in shown] == []
