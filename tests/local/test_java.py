"""Java missing, too old or broken: one sentence and the hint."""

from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.local.java import find_java, property_value


def fake_java(home: Path, says: str) -> None:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)


def test_java_of_java_home_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (find_java().path, find_java().version) == (tmp_path / "bin" / "java", 21)


@pytest.mark.parametrize(
    ("says", "what"),
    [
        ('java version "1.8.0_391"', "Java 8 is too old; 17 is needed."),
        ('openjdk version "11.0.2"', "Java 11 is too old; 17 is needed."),
        ("cannot open shared object", "Java did not print its version."),
    ],
)
def test_unfit_java_is_refused(
    says: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, says)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError) as error:
        find_java()
    assert error.value.what == what
    assert "Install a Java runtime" in error.value.hint


def test_missing_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="Java was not found"):
        find_java()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/a b/x-1", "/home/a b/x-1"),
        ("/home/José", "/home/Jos\\u00e9"),
        ("/東/\U0001f600", "/\\u6771/\\ud83d\\ude00"),
        ("a\\tb", "a\\u005ctb"),
    ],
)
def test_properties_of_java_have_escapes(text: str, told: str) -> None:
    """Java takes the bytes for Latin-1: a broker kept its segments in a folder beside its own, and
    found none at its next start."""
    assert property_value(text) == told
