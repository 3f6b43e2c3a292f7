"""Users, files and certificates of a secured stack, without starting anything."""

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coordlib.errors import SetupError
from coordlib.kafka.options import read_options
from coordlib.kafka.roles import Right, Role
from coordlib.local import broker
from coordlib.local import secured as certificates
from coordlib.local.broker import Broker
from coordlib.local.home import write_private
from coordlib.local.java import Java
from coordlib.local.secured import ADMIN, Certificates, Secured


class Programs:
    """Stands in for `subprocess.run`: notes command lines, and leaves the files they would."""

    def __init__(self, code: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.files: dict[str, str] = {}
        self.code = code

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        for word in command:
            if word.startswith("@"):
                path = Path(word[1:])
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                self.files[path.name] = path.read_text()
        return subprocess.CompletedProcess(command, self.code, "a certificate\n", "no way")

    @property
    def shown(self) -> str:
        """What a list of processes had."""
        return "\n".join(" ".join(command) for command in self.commands)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    programs = Programs()
    monkeypatch.setattr(subprocess, "run", programs)
    for module in (certificates, broker):
        monkeypatch.setattr(module, "find_java", lambda: Java(Path("/j/bin/java"), 17))
    return programs


@pytest.fixture
def secured(tmp_path: Path, programs: Programs) -> Secured:
    secured = Secured(tmp_path)
    secured.make()
    return secured


def drawn(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "secrets" / "passwords.json").read_text())
    return found


def test_each_role_gets_a_file_of_its_own(secured: Secured, tmp_path: Path) -> None:
    secured.write_clients("127.0.0.1:1")

    found = {path.stem: read_options(path) for path in (tmp_path / "clients").iterdir()}
    assert found.keys() == {*Role, ADMIN}
    assert len({options["sasl.password"] for options in found.values()}) == len(found)
    assert found["member"] == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "member",
        "sasl.password": drawn(tmp_path)["member"],
        "ssl.ca.location": str(tmp_path / "secrets" / "ca.pem"),
    }


def test_passwords_are_drawn_once(secured: Secured, tmp_path: Path, programs: Programs) -> None:
    """A restart with others would lock everybody out."""
    before, runs = drawn(tmp_path), len(programs.commands)
    Secured(tmp_path).make()

    assert drawn(tmp_path) == before
    assert len(programs.commands) == runs
    assert Secured(tmp_path).is_made


def test_no_program_is_given_a_password(
    secured: Secured, tmp_path: Path, programs: Programs
) -> None:
    """Neither keytool nor the tool that formats the broker's storage; it reads them from a file."""
    started = Broker(tmp_path / "broker", (), secured=secured)
    started.home.mkdir()
    started._format_once()

    secrets = [*drawn(tmp_path).values(), Certificates(tmp_path / "secrets").store_password]
    assert [secret for secret in secrets if secret in programs.shown] == []
    assert all(secret in programs.files["scram-users"] for secret in drawn(tmp_path).values())
    assert not (started.home / "scram-users").exists()


def test_nobody_but_the_named_ones_may_do_anything(secured: Secured, tmp_path: Path) -> None:
    lines = secured.broker_lines({"port": 1, "controller_port": 2}).splitlines()
    settings = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    assert settings["allow.everyone.if.no.acl.found"] == "false"
    assert settings["super.users"] == "User:CN=coord-broker;User:broker;User:admin"
    assert "PLAINTEXT" not in settings["listener.security.protocol.map"]
    assert settings["listener.name.controller.ssl.client.auth"] == "required"


def test_keytool_that_fails_leaves_no_secured_stack(
    tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs.code = 1
    with pytest.raises(SetupError, match="keytool has failed"):
        Secured(tmp_path).make()

    assert not Secured(tmp_path).is_made


def test_a_private_file_replaces_a_public_one(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_role_is_granted_what_it_can_have_of_claims(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coord up --secure --claims`: the job's query had no right, and failed for good."""
    secured.write_clients("127.0.0.1:1")
    granted: dict[str, set[str]] = {}

    def grant(_: object, principal: str, wanted: list[Right]) -> None:
        granted[principal.removeprefix("User:")] = {f"{r.operation} {r.name}" for r in wanted}

    monkeypatch.setattr("coordlib.local.secured.grant", grant)
    secured.grant_roles("coord")
    assert not any("claims" in each for rows in granted.values() for each in rows)
    secured.grant_roles("coord", "__marshal")

    assert {"Read __marshal", "Write coord.claims-coordinator"} <= granted["job"]
    assert {"Write __marshal", "Read coord.claims.snapshots"} <= granted["claimant"]
    assert {"Write __marshal", "Describe *"} <= granted["operator"]
    assert "Write __marshal" not in granted["job"] | granted["claims"] | granted["archive"]
