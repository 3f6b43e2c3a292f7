"""The archive of loaded classes: made once for one Java and one set of jars, and never missed."""

import gzip
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from coordlib.local import class_archive
from coordlib.local.java import find_java

FEW_CLASSES = b"java/lang/Object id: 0\njava/lang/String id: 1\n"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where nothing was made yet, one jar, and a short list of classes."""
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.delenv("COORD_SPARK_HOME", raising=False)
    listed = tmp_path / "classes.txt.gz"
    listed.write_bytes(gzip.compress(FEW_CLASSES))
    monkeypatch.setattr(class_archive, "_list_file", lambda: listed)
    find_java()  # asks Java once
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"")
    return [jar]


def told(_: str) -> None:
    """Progress that nobody reads."""


def test_it_is_made_and_java_uses_it(
    jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same class path, the same Java; a second call makes nothing."""
    monkeypatch.setattr(class_archive, "_class_path", lambda _: str(tmp_path))
    assert class_archive.options(jars) == ""
    made = class_archive.make(jars, told)

    assert made is not None
    assert class_archive.options(jars) == f"-XX:SharedArchiveFile={made} -Xlog:cds=off"
    java = [str(find_java().path), *class_archive.options(jars).split(), "-Xshare:on", "-version"]
    assert subprocess.run([*java], capture_output=True, check=False).returncode == 0
    monkeypatch.setattr(class_archive, "_dump", None)
    assert class_archive.make(jars, told) == made


def test_other_jars_have_another_archive(jars: list[Path]) -> None:
    """Java compares sizes and times, and so does its name."""
    before = class_archive._path(jars)
    jars[0].write_bytes(b"changed")

    assert class_archive._path(jars) != before


def test_the_class_path_is_the_one_that_spark_composes(jars: list[Path]) -> None:
    """What we add first, then what lies beside pyspark."""
    first, *_, last = class_archive._class_path(jars).split(":")

    assert first == str(jars[0])
    assert last.endswith("/jars/*")


@pytest.mark.parametrize("said", ["off", "use"])
def test_nothing_is_made_where_nobody_wants_it(
    said: str, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`use` still takes one that is there."""
    monkeypatch.setenv(class_archive.VARIABLE, said)
    monkeypatch.setattr(subprocess, "Popen", None)
    class_archive.make_in_background(jars)
    class_archive._path(jars).parent.mkdir(parents=True)
    class_archive._path(jars).write_bytes(b"an archive")

    assert bool(class_archive.options(jars)) == (said == "use")


def test_without_room_or_with_another_maker_it_is_left(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two set-ups at once would take two cores for a minute."""
    folder = class_archive._path(jars).parent
    folder.mkdir(parents=True)
    with class_archive._alone(folder) as is_alone:
        assert is_alone
        assert class_archive.make(jars, told) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert class_archive.make(jars, told) is None


def test_a_folder_that_cannot_be_written_stops_no_start(
    jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job starts as without it."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "file"))

    class_archive.make_in_background(jars)
    assert class_archive.options(jars) == ""
