"""What a cluster's executors must have in common with the driver, before anything begins."""

import ast
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordlib.errors import NotReady, SetupError
from coordlib.installation import PACKAGE
from coordlib.job import workers
from coordlib.job.workers import compare, look_around, require_executors


class Context:
    """A cluster whose executors answer, or never come."""

    master = "spark://m:7077"

    def __init__(self, tell: Callable[[Any], Any] | None = None) -> None:
        self._tell = tell
        self.is_cancelled = False

    def parallelize(self, numbers: Iterable[int], tasks: int) -> "Context":
        self.tasks = len(list(numbers))
        assert self.tasks == tasks
        return self

    def map(self, look: Callable[[int], Any]) -> "Context":
        self._look = look
        return self

    def collect(self) -> list[Any]:
        if self._tell is None:
            while not self.is_cancelled:
                pass
            raise RuntimeError("Job 0 cancelled")
        return [self._tell(self._look(n)) for n in range(self.tasks)]

    def cancelAllJobs(self) -> None:  # noqa: N802  Spark's own
        self.is_cancelled = True


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a" / "checkpoint"
    monkeypatch.setattr(workers, "_local_folder", lambda *_: folder)
    return folder


def on(context: Any, tasks: int = 3) -> Any:
    conf = SimpleNamespace(get=lambda key: str(tasks))
    return SimpleNamespace(sparkContext=context, conf=conf)


def test_executors_like_the_driver_are_taken_and_leave_nothing_behind(checkpoint: Path) -> None:
    context = Context(lambda seen: seen)

    require_executors(on(context), str(checkpoint))

    assert context.tasks == 3
    assert list(checkpoint.iterdir()) == []


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_laptop_has_no_executors_to_ask(master: str) -> None:
    require_executors(on(SimpleNamespace(master=master)), "/nowhere")


def test_the_executors_of_local_cluster_are_asked(checkpoint: Path) -> None:
    """They are processes of their own, which unpack an environment."""
    context = Context(lambda seen: replace(seen, code="older"))
    context.master = "local-cluster[1,1,1024]"

    with pytest.raises(SetupError):
        require_executors(on(context), str(checkpoint))


def test_an_archive_that_was_packed_before_the_last_upgrade_is_refused(checkpoint: Path) -> None:
    """Driver and workers would judge by different rules, and a replay would differ."""
    context = Context(lambda seen: replace(seen, code="older"))

    with pytest.raises(SetupError) as told:
        require_executors(on(context), str(checkpoint))

    assert str(told.value).splitlines()[:2] == [
        "Executors have other code of coordlib than the driver.",
        f"on {socket.gethostname()}",
    ]
    assert "COORD_ENV_ARCHIVE" in told.value.hint


def test_a_checkpoint_that_only_the_driver_sees_is_refused(checkpoint: Path) -> None:
    """/tmp on each machine: it works until a shard moves to another one, whose state is not
    there."""
    context = Context(lambda seen: replace(seen, host="other", shares_checkpoint=False))

    with pytest.raises(SetupError) as told:
        require_executors(on(context), str(checkpoint))

    assert told.value.what == "Executors cannot write into the driver's checkpoint folder."
    assert told.value.where == f"{checkpoint} on other"
    assert list(checkpoint.iterdir()) == []


def test_a_cluster_without_a_free_worker_is_not_waited_for_for_ever(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark warns every 15 s and waits; a supervisor sees a job that starts."""
    monkeypatch.setattr(workers, "WAIT_TIMEOUT_S", 0.05)

    with pytest.raises(NotReady, match=r"No executor has come within 0 s\.") as told:
        require_executors(on(Context()), str(checkpoint))

    assert told.value.where == "spark://m:7077"


def test_what_ends_the_tasks_is_told_as_it_is(checkpoint: Path) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("Python in worker has different version")

    with pytest.raises(RuntimeError, match="different version"):
        require_executors(on(Context(fail)), str(checkpoint))
    assert list(checkpoint.iterdir()) == []


def test_a_checkpoint_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(workers, "_local_folder", lambda *_: tmp_path / "file" / "checkpoint")

    with pytest.raises(NotReady, match="does not take a file"):
        require_executors(on(Context()), "/c")


def test_a_folder_on_an_object_store_is_not_looked_for() -> None:
    assert look_around(None).shares_checkpoint


def test_what_is_not_there_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "probe").touch()

    assert look_around(str(tmp_path / "probe")).shares_checkpoint
    assert not look_around(str(tmp_path / "other")).shares_checkpoint


def test_every_executor_is_compared() -> None:
    ours = look_around(None)

    compare([ours, ours], "/c")
    with pytest.raises(SetupError, match="on a, b"):
        compare([replace(ours, host=h, code="x") for h in "ba"] + [ours], "/c")


def imported(source: Path) -> set[Path]:
    """The modules of coordlib that a file imports, or their packages."""
    tree = ast.parse(source.read_text())
    named = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coordlib"
        for alias in node.names
    }
    return {PACKAGE.parent / each.replace(".", "/") for each in named}


def test_all_that_the_core_is_made_of_is_compared() -> None:
    """A limit that was raised on the driver alone: executors would refuse what it accepts."""
    compared = set(workers._deciding())
    core = list((PACKAGE / "core").rglob("*.py"))
    needed = {
        file
        for source in core
        for module in imported(source)
        for file in (module.with_suffix(".py"), module.parent.with_suffix(".py"))
        if file.is_file()
    }

    assert PACKAGE / "limits.py" in needed
    assert needed <= compared
