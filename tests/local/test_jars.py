"""Jars are verified each time, repaired once, and resolved again only when one is wrong."""

import hashlib
from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.installation import conf_file
from coordlib.local import home, jars
from coordlib.local.progress import silent

GOOD, BAD = b"good bytes", b"bad bytes!"
NAMES = ("spark/a-1.jar", "spark/b-1.jar", "broker/c-1.jar")


class Repository:
    """Stands for Ivy: writes what it has, and counts the calls."""

    def __init__(self) -> None:
        self.content, self.calls = GOOD, 0

    def retrieve(self, configuration: str, into: Path, cache: Path) -> None:
        self.calls += 1
        into.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            path = into.parent / name
            if name.startswith(configuration) and not path.exists():
                path.write_bytes(self.content)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository()
    sums = tmp_path / "jars.sha256"
    digest = hashlib.sha256(GOOD).hexdigest()
    sums.write_text("# a comment\n" + "".join(f"{digest}  {name}\n" for name in NAMES))
    monkeypatch.setenv("COORD_HOME", str(tmp_path / "coord"))
    monkeypatch.setattr(jars, "conf_file", lambda name: sums)
    monkeypatch.setattr(jars, "retrieve", repository.retrieve)
    return repository


def test_second_set_up_resolves_nothing(repository: Repository) -> None:
    first = jars.ensure_jars(silent)
    assert repository.calls == 2  # one per configuration
    assert jars.ensure_jars(silent) == first
    assert repository.calls == 2
    assert [path.name for path in first.spark] == ["a-1.jar", "b-1.jar"]
    assert [path.name for path in first.broker] == ["c-1.jar"]


def test_corrupt_jar_is_replaced_and_told(repository: Repository) -> None:
    """A download was cut by a full disk, or a disk block went bad."""
    spark = jars.ensure_jars(silent).spark
    spark[0].write_bytes(BAD)  # same size
    told: list[str] = []
    jars.ensure_jars(told.append)
    assert spark[0].read_bytes() == GOOD
    assert told[0] == "a-1.jar has a wrong checksum: removed, to be resolved again"


def test_cached_copy_is_removed_only_if_it_is_wrong_too(repository: Repository) -> None:
    """Deleting a good cached copy would download the jar twice."""
    spark = jars.ensure_jars(silent).spark
    cache = home.coord_home() / "ivy"
    cache.mkdir()
    (cache / "a-1.jar").write_bytes(GOOD)
    (cache / "b-1.jar").write_bytes(BAD)
    for jar in spark:
        jar.write_bytes(BAD)
    jars.ensure_jars(silent)
    assert [path.name for path in cache.iterdir()] == ["a-1.jar"]


def test_jar_that_is_wrong_twice_is_refused(repository: Repository) -> None:
    """Somebody between us and the repository serves another jar under that name."""
    repository.content = BAD
    with pytest.raises(SetupError, match="not the one that this project was tested with") as error:
        jars.ensure_jars(silent)
    assert "a-1.jar" in error.value.where
    assert "make checksums" in error.value.hint


def test_jar_of_an_earlier_version_is_removed(repository: Repository) -> None:
    spark = jars.ensure_jars(silent).spark
    old = spark[0].with_name("a-0.jar")
    old.write_bytes(GOOD)
    jars.ensure_jars(silent)
    assert not old.exists()


def test_full_disk_is_told_before_anything_is_downloaded(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "FREE_SPACE_MIN", 1 << 60)
    with pytest.raises(SetupError, match="MB left") as error:
        jars.ensure_jars(silent)
    assert "COORD_HOME" in error.value.hint
    assert repository.calls == 0


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("Server access error at url … (java.net.UnknownHostException: x)", "cannot be reached"),
        ("java.io.IOException: No space left on device", "disk is full"),
        (":: org.x#y;1.0: not found\n:: UNRESOLVED DEPENDENCIES ::", "could not be resolved"),
    ],
)
def test_ivys_complaint_becomes_one_sentence(output: str, what: str) -> None:
    error = jars.complaint(output, "spark")
    assert what in error.what
    assert error.hint


def test_every_pinned_jar_has_a_checksum() -> None:
    """An exact version in jars.xml that jars.sha256 forgot would never be on a class path."""
    expected = jars.read_checksums(conf_file("jars.sha256"))
    text = conf_file("jars.xml").read_text()
    pinned = [line for line in text.splitlines() if "<dependency " in line]
    for line in pinned:
        name, revision = line.split('name="')[1].split('"')[0], line.split('rev="')[1].split('"')[0]
        assert any(jar.endswith(f"/{name}-{revision}.jar") for jar in expected)
