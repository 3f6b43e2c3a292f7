"""What a folder may be called on a command line."""

from pathlib import Path

import pytest

from coordlib.cli.kit.where import WhereTables
from coordlib.errors import SetupError
from coordlib.folders import folder_named


@pytest.mark.parametrize(
    "text", ["", " ", "\t", " /data", "/data ", "/da\nta", "~nobody-of-that-name/x"]
)
@pytest.mark.parametrize("may_be_uri", [False, True])
def test_what_is_no_folder_is_refused(text: str, may_be_uri: bool) -> None:
    """A blank in a unit file made a folder with a name that nobody sees, and history went there."""
    with pytest.raises(SetupError, match="names no folder"):
        folder_named(text, "--tables", may_be_uri)


@pytest.mark.parametrize(
    "text",
    [
        "s3://",
        "s3:///tables",
        "abfss://",
        "://bucket/x",
        "file://",
        "hdfs://",
        "s3://[",
        "s3:// /x",
    ],
)
def test_an_address_without_a_host_is_refused(text: str) -> None:
    """`s3://$BUCKET/tables` with BUCKET unset: the client of the store looked for a minute."""
    with pytest.raises(SetupError, match="names no folder"):
        folder_named(text, "--tables", may_be_uri=True)


@pytest.mark.parametrize(
    "text", ["s3://bucket/tables", "s3://bucket", "file:///data/tables", "hdfs:///coord/tables"]
)
def test_an_address_stays_as_it_is(text: str) -> None:
    """Its two slashes are no empty folder."""
    assert WhereTables(tables=text).tables_dir() == text
    folder_named(text, "--tables", may_be_uri=True)


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves it as it is in `--tables=~/tables`: a folder of the name `~` was made."""
    monkeypatch.setenv("HOME", str(tmp_path))

    assert folder_named("~/x", "--stack-folder") == tmp_path / "x"
    assert WhereTables(tables="~/tables").tables_dir() == str(tmp_path / "tables")
