"""Which cluster a command speaks to, where the name of it is missing by mistake."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.exit_codes import USAGE
from tests.cli.kit import Cli


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Where]]:
    """The clusters that commands have asked; none of them answers."""
    found: list[Where] = []

    def reach(where: Where, user: str = "operator") -> dict[str, Any]:
        found.append(where)
        where.servers  # noqa: B018  # a file that cannot be read is found here
        raise TimeoutError

    monkeypatch.setattr(Where, "reach", reach)
    return found


@pytest.mark.parametrize("servers", ["", " ", "\t"])
@pytest.mark.parametrize("option", ["-b", "--bootstrap-servers"])
def test_an_empty_cluster_is_not_the_local_stack(
    servers: str, option: str, asked: list[Where], capsys: pytest.CaptureFixture[str]
) -> None:
    """`groups delete billing --yes -b "$KAFKA"` deleted in the local stack, as KAFKA was unset."""
    assert main(["groups", "delete", "billing", "--yes", option, servers]) == USAGE

    assert asked == []
    assert "--bootstrap-servers" in capsys.readouterr().err


@pytest.mark.parametrize("servers", ["", " "])
def test_an_empty_variable_counts_as_unset(
    servers: str, asked: list[Where], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`COORD_BOOTSTRAP_SERVERS=` in a shell is how people take a variable back."""
    monkeypatch.setenv("COORD_BOOTSTRAP_SERVERS", servers)

    main(["groups", "list"])

    assert [where.bootstrap_servers for where in asked] == [None]
    assert asked[0].is_local


def test_an_empty_option_is_refused_beside_a_variable(
    asked: list[Where], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option wins over the variable, also where it was given by mistake."""
    monkeypatch.setenv("COORD_BOOTSTRAP_SERVERS", "production:9092")

    assert main(["groups", "list", "-b", ""]) == USAGE
    assert asked == []


def test_a_file_may_name_the_cluster(
    asked: list[Where], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coord up --secure` writes such files; the local stack is not meant then."""
    file = tmp_path / "member.properties"
    file.write_text("bootstrap.servers=there:1\nsasl.username=member\n")

    main(["groups", "list", "--kafka-file", str(file)])
    main(["groups", "list", "--kafka-file", str(file), "-b", "elsewhere:1"])
    main(["groups", "list", "--kafka-file", str(file), "--stack", "another"])
    monkeypatch.setenv("COORD_KAFKA_FILE", str(file))
    main(["groups", "list"])
    monkeypatch.setenv("COORD_KAFKA_FILE", "")
    main(["groups", "list"])

    assert [each.servers for each in asked] == ["there:1", "elsewhere:1", None, "there:1", None]
    assert asked[0].client() == {"bootstrap.servers": "there:1", "sasl.username": "member"}


@pytest.mark.parametrize("content", ["sasl.username=a\n", "", "bootstrap.servers=\n"])
@pytest.mark.parametrize("is_variable", [True, False])
def test_a_file_that_names_no_cluster_is_not_the_local_stack(
    content: str,
    is_variable: bool,
    asked: list[Where],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
) -> None:
    """`claims pause billing --kafka-file production.properties` paused a group on the laptop."""
    file = tmp_path / "production.properties"
    file.write_text(content)
    words = ["groups", "list"]
    if is_variable:
        monkeypatch.setenv("COORD_KAFKA_FILE", str(file))
    else:
        words += ["--kafka-file", str(file)]

    told = cli(*words, code=USAGE).err.splitlines()
    assert len(told) == 3
    assert "no bootstrap.servers" in told[0]
    assert str(file) in told[1]
    main([*words, "-b", "there:1"])
    assert asked[-1].servers == "there:1"


def test_a_file_that_is_not_there_is_wrong_usage(asked: list[Where], cli: Cli) -> None:
    assert main(["topics", "check", "--kafka-file", ""]) == USAGE
    assert (
        "--kafka-file /does/not/exist"
        in cli("topics check --kafka-file /does/not/exist", code=USAGE).err
    )
