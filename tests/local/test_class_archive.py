"""The archive of loaded classes: made once for one Java and one set of jars, and never missed."""

import gzip
import shlex
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
    monkeypatch.setenv("COORD_HOME", str(tmp_path / 'a "home"'))
    monkeypatch.delenv(class_archive.VARIABLE, raising=False)
    monkeypatch.delenv("COORD_SPARK_HOME", raising=False)
    listed = tmp_path / "classes.txt.gz"
    listed.write_bytes(gzip.compress(FEW_CLASSES))
    monkeypatch.setattr(class_archive, "_list_file", lambda: listed)
    find_java()  # asks Java once
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"")
    return [jar]


def test_it_is_made_and_java_uses_it(
    jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same class path, the same Java; a second call makes nothing.

    Spark's launcher splits the options as a shell does. With a blank in the folder's name no job
    started any more from the moment on at which the archive was there.
    """
    monkeypatch.setattr(class_archive, "_class_path", lambda _: str(tmp_path))
    assert class_archive.options(jars) == ""
    made = class_archive.make(jars)

    assert made is not None
    options = shlex.split(class_archive.options(jars))
    assert options == [f"-XX:SharedArchiveFile={made}", "-Xlog:cds=off"]
    java = [str(find_java().path), *options, "-Xshare:on", "-version"]
    assert subprocess.run([*java], capture_output=True, check=False).returncode == 0
    monkeypatch.setattr(class_archive, "_dump", None)
    assert class_archive.make(jars) == made


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


def test_of_two_makers_one_leaves_it_to_the_other(jars: list[Path]) -> None:
    """Two set-ups at once would take two cores for a minute."""
    folder = class_archive._path(jars).parent
    folder.mkdir(parents=True)
    with class_archive._alone(folder) as is_alone:
        assert is_alone
        assert class_archive.make(jars) is None


def test_a_folder_that_cannot_be_written_stops_no_start_and_is_named(
    jars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's COORD_HOME: the job starts as without an archive, and one line says why."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "file"))
    told: list[str] = []

    class_archive.make_in_background(jars, told.append)

    assert len(told) == 1
    assert told[0].startswith("No archive of classes, so the job starts slower: [Errno 20] Not a ")
    assert str(tmp_path / "file" / "made") in told[0]
    assert class_archive.options(jars) == ""


def _no_room(_: object) -> SimpleNamespace:
    return SimpleNamespace(free=1 << 20)


def _no_such_class_path(_: object) -> str:
    raise subprocess.CalledProcessError(1, ["java"], stderr="Error: no heap\nmore of it\n")


@pytest.mark.parametrize(
    ("place", "broken", "why"),
    [
        ("shutil.disk_usage", _no_room, "[Errno 28] less than 1 GiB is free"),
        ("_class_path", _no_such_class_path, "Error: no heap"),
    ],
)
def test_why_a_try_in_the_background_failed_is_told_by_the_next_command(
    place: str,
    broken: object,
    why: str,
    jars: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody reads the log of a process that `make setup` has left behind: without a word every
    start would take half as long again for ever. The line comes once for each try."""
    module = class_archive.__name__
    monkeypatch.setattr(f"{module}.{place}", broken)
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: None)
    told: list[str] = []
    class_archive.make_in_background(jars, told.append)
    assert told == [], "nothing is known yet"
    assert class_archive.main([*map(str, jars)]) == 1
    (class_archive._path(jars).parent / "class-archive.log").write_text(capsys.readouterr().err)

    class_archive.make_in_background(jars, told.append)
    class_archive.make_in_background(jars, told.append)

    assert len(told) == 1
    assert told[0].startswith(f"No archive of classes, so the job starts slower: {why}")
