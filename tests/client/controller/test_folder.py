"""A broker's folder: one process at a time, and what the next one may rely on."""

import errno
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from coordlib.client.controller import folder as module
from coordlib.client.controller.folder import KEPT, Folder, Registered
from coordlib.errors import NotReady, SetupError

NEWEST = Registered(cluster="shop", broker=7, topics="AbCdEfGh", incarnation=40)
HOLDS = """
import sys, time
from coordlib.client.controller.folder import Folder
held = Folder(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def previous(folder: Folder, **other: Any) -> int:
    named = {"cluster": "shop", "broker": 7, "topics": "AbCdEfGh", **other}
    return folder.previous(**named)


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_storage_is_drawn_once_and_kept(tmp_path: Path) -> None:
    first = Folder(tmp_path / "data")
    storage = first.storage
    first.close(has_stopped=True)

    again = Folder(tmp_path / "data")

    assert len(storage) == 32
    assert again.storage == storage
    assert previous(again) == -1
    again.close(has_stopped=True)


def test_the_next_process_knows_the_incarnation_that_has_ended(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    first.keep(NEWEST)
    first.close(has_stopped=True)

    again = Folder(tmp_path)

    assert previous(again) == 40
    again.close(has_stopped=True)


@pytest.mark.parametrize(
    "other", [{"cluster": "else"}, {"broker": 8}, {"topics": "HgFeDcBa"}], ids=str
)
def test_an_incarnation_counts_for_the_same_broker_of_the_same_topics(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    """Topics that were made anew begin at offset 0 again."""
    first = Folder(tmp_path)
    first.keep(NEWEST)
    first.close(has_stopped=True)

    again = Folder(tmp_path)

    assert previous(again, **other) == -1
    again.close(has_stopped=True)


def test_a_second_process_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    """Killed without a word: the system gives its lock back."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(NotReady, match="Another process uses this broker's folder"):
        Folder(tmp_path)

    holder.kill()
    holder.wait()
    holder.stdout.close()
    Folder(tmp_path).close(has_stopped=True)


def test_two_agents_of_one_process_have_two_folders(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    with pytest.raises(NotReady):
        Folder(tmp_path)
    first.close(has_stopped=True)


def test_a_copied_folder_has_the_data_and_knows_of_no_process_that_has_ended(
    tmp_path: Path,
) -> None:
    """The process of the folder that was copied may still run, and lead."""
    first = Folder(tmp_path / "data")
    first.keep(NEWEST)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")

    copy = Folder(tmp_path / "copy")

    assert copy.storage == first.storage
    assert previous(copy) == -1
    first.close(has_stopped=True)
    copy.close(has_stopped=True)


def test_a_folder_on_another_machine_knows_of_no_process_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume moves, and its file has the number that it had."""
    first = Folder(tmp_path)
    first.keep(NEWEST)
    first.close(has_stopped=True)
    monkeypatch.setattr(module, "own_host", lambda: "another")

    moved = Folder(tmp_path)

    assert previous(moved) == -1
    moved.close(has_stopped=True)


def test_a_folder_under_another_kernel_knows_of_no_process_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's host name and machine id come with its image: a node is cut off, its volume is
    attached to another node, and the same container starts there. The first one still leads, and
    the second one's kernel knows nothing of its lock."""
    first = Folder(tmp_path / "data")
    first.keep(NEWEST)
    first.close(has_stopped=True)
    booted = tmp_path / "boot_id"
    booted.write_text("another kernel\n")
    monkeypatch.setattr(module, "BOOT_ID", booted)

    moved = Folder(tmp_path / "data")

    assert previous(moved) == -1
    moved.close(has_stopped=True)


def test_whose_user_may_still_be_at_work_leaves_nothing_to_rely_on(tmp_path: Path) -> None:
    """Its process goes on; the next one must not say that it has ended."""
    first = Folder(tmp_path)
    first.keep(NEWEST)
    first.close(has_stopped=False)

    again = Folder(tmp_path)

    assert previous(again) == -1
    again.close(has_stopped=True)


@pytest.mark.parametrize("has_stopped", [True, False])
def test_a_registration_that_comes_after_the_end_is_not_kept(
    tmp_path: Path, has_stopped: bool
) -> None:
    """It is kept in a thread of its own; by then the folder may be another process's."""
    first = Folder(tmp_path)
    first.close(has_stopped)
    again = Folder(tmp_path)

    first.keep(NEWEST)

    again.close(has_stopped=True)
    last = Folder(tmp_path)
    assert previous(last) == -1
    last.close(has_stopped=True)


def test_the_end_waits_for_a_registration_that_is_being_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stand there again when the user of an agent that left may still be at work."""
    first, own_host = Folder(tmp_path), module.own_host
    is_writing, may_go_on = threading.Event(), threading.Event()

    def slow() -> str:
        if threading.current_thread() is keeping:
            is_writing.set()
            may_go_on.wait(60)
        return own_host()

    monkeypatch.setattr(module, "own_host", slow)
    keeping = threading.Thread(target=first.keep, args=(NEWEST,))
    closing = threading.Thread(target=first.close, args=(False,))
    keeping.start()
    assert is_writing.wait(60)
    closing.start()
    closing.join(0.2)
    may_go_on.set()
    keeping.join(60)
    closing.join(60)

    again = Folder(tmp_path)
    assert previous(again) == -1
    again.close(has_stopped=True)


def test_a_full_disk_at_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is not on the disk would be another one at the next start."""
    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(SetupError, match="No space left on device"):
        Folder(tmp_path)
    monkeypatch.undo()
    Folder(tmp_path).close(has_stopped=True)


def test_a_full_disk_later_costs_the_next_process_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = Folder(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING, "coordlib.client"):
        first.keep(NEWEST)
    monkeypatch.undo()
    first.close(has_stopped=True)

    assert "cannot be kept" in caplog.text
    again = Folder(tmp_path)
    assert previous(again) == -1
    again.close(has_stopped=True)


@pytest.mark.parametrize("call", ["keep", "close"])
def test_a_folder_that_was_replaced_under_its_process_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """Its data would be named as this process's, and be taken for complete: a leader without them.
    Whether the mount was lost, or somebody has deleted the folder and begun anew."""
    first = Folder(tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    second = Folder(tmp_path / "data")
    lies_there = (tmp_path / "data" / KEPT).read_bytes()

    with caplog.at_level(logging.WARNING, "coordlib.client"):
        if call == "keep":
            first.keep(NEWEST)
        else:
            first.close(has_stopped=False)

    assert "Another folder has come to its place" in caplog.text
    assert (tmp_path / "data" / KEPT).read_bytes() == lies_there
    assert second.storage != first.storage
    first.close(has_stopped=True)
    second.close(has_stopped=True)


def test_a_folder_that_is_gone_is_told_and_not_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Folder(tmp_path / "data")
    shutil.rmtree(tmp_path / "data")

    with caplog.at_level(logging.WARNING, "coordlib.client"):
        first.keep(NEWEST)
    first.close(has_stopped=True)

    assert "put the folder back" in caplog.text
    assert not (tmp_path / "data").exists()


def test_whose_user_may_be_at_work_keeps_the_lock_where_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Folder(tmp_path)
    first.keep(NEWEST)
    monkeypatch.setattr(os, "fsync", full)
    first.close(has_stopped=False)
    monkeypatch.undo()

    with pytest.raises(NotReady):
        Folder(tmp_path)
    os.close(first._lock)


@pytest.mark.parametrize("text", ["", "{", '{"v":1}', "[]", '{"storage":5,"lock":"x"}'])
def test_what_cannot_be_read_is_not_taken_for_an_empty_folder(tmp_path: Path, text: str) -> None:
    """Another storage would take it out of all in-sync replicas: an operator decides that."""
    (tmp_path / KEPT).write_text(text)

    with pytest.raises(SetupError, match="cannot be read"):
        Folder(tmp_path)


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SetupError, match="cannot be used"):
        Folder(tmp_path / "file")
