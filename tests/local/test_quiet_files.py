"""The small class for local files: compiled once, and not missed where it cannot be."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from coordlib.local import class_archive
from coordlib.local.home import pyspark_home
from coordlib.local.java import find_java

#: Writes two files as a job does: the key that signs control records, and any other.
WRITES = """
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;
public class Writes {
  public static void main(String[] folder) throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.file.impl", "QuietLocalFileSystem");
    FileSystem fs = FileSystem.get(new URI("file:///"), conf);
    FsPermission owner = new FsPermission((short) 0600);
    fs.create(new Path(folder[0], "secret"), owner, true, 4096, (short) 1, 1 << 20, null).close();
    fs.create(new Path(folder[0], "other")).close();
  }
}
"""


def _has_compiler() -> bool:
    try:
        class_archive._compiler()
    except FileNotFoundError:
        return False
    return True


needs_javac = pytest.mark.skipif(not _has_compiler(), reason="a JRE has no javac")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "home"))


@needs_javac
def test_it_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call finds it, and starts nothing."""
    told: list[str] = []
    made = class_archive.build_quiet_jar(told.append)

    assert made is not None
    assert made == class_archive.quiet_jar()
    assert zipfile.ZipFile(made).namelist() == [
        "QuietLocalFileSystem$Raw.class",
        "QuietLocalFileSystem.class",
    ]
    monkeypatch.setattr(subprocess, "run", None)
    assert class_archive.build_quiet_jar(told.append) == made
    assert told == []


@needs_javac
def test_a_file_that_is_its_owners_alone_is_so_whatever_the_umask(tmp_path: Path) -> None:
    """A job that was submitted by hand wrote the key that signs control records for everybody."""
    made = class_archive.build_quiet_jar(print)
    (tmp_path / "Writes.java").write_text(WRITES)
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{made}:{pyspark_home() / 'jars'}/*"]
    subprocess.run([*command, str(tmp_path / "Writes.java"), tmp_path], check=True, umask=0o022)

    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("secret", "other")}
    assert modes == {"secret": 0o600, "other": 0o644}


def test_without_a_compiler_the_job_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JRE has none."""
    told: list[str] = []
    monkeypatch.setattr(class_archive, "_compiler", lambda: "/nowhere/javac")

    assert class_archive.build_quiet_jar(told.append) is None
    assert class_archive.quiet_jar() is None
    assert len(told) == 1
    assert told[0].startswith("Local files are written the slow way: ")


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine whose administrator has set it up."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "file"))
    told: list[str] = []

    assert class_archive.build_quiet_jar(told.append) is None
    assert len(told) == 1


@needs_javac
def test_a_source_that_does_not_compile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Hadoop could have another file system."""
    source = tmp_path / "QuietLocalFileSystem.java"
    source.write_text("public class QuietLocalFileSystem extends Nothing {}")
    monkeypatch.setattr(class_archive, "_SOURCE", source)
    told: list[str] = []

    assert class_archive.build_quiet_jar(told.append) is None
    assert "cannot find symbol" in told[0]
