"""The log of a job whose lines cannot be written any more."""

import os
import subprocess
import sys
from pathlib import Path

STATUS_ON_A_FULL_DISK = """
import sys
from pathlib import Path
from coordlib.job import process
from coordlib.job.background.loop import StatusFile
process.configure()
for _ in range(200):
    StatusFile(Path(sys.argv[1])).write()
print("goes on")
"""


def ended(tmp_path: Path, stderr: int) -> tuple[int, str]:
    unwritable = tmp_path / "no such folder" / "job.json"
    command = [sys.executable, "-c", STATUS_ON_A_FULL_DISK, str(unwritable)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)
    return answer.returncode, answer.stdout


def test_batches_go_on_where_neither_status_nor_log_can_be_written(tmp_path: Path) -> None:
    """A local stack's job.json and job.log are on one disk, and that is full: the warning about the
    first one must not end the batch that wrote it."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert ended(tmp_path, full) == (0, "goes on\n")
    finally:
        os.close(full)


def test_job_goes_on_when_the_reader_of_its_log_has_ended(tmp_path: Path) -> None:
    """`coord submit coordinate … 2>&1 | head -100`, or a collector of logs that is started anew."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert ended(tmp_path, writer) == (0, "goes on\n")
    finally:
        os.close(writer)


def test_lines_of_a_log_that_can_be_written_are_there(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with log.open("wb") as file:
        assert ended(tmp_path, file.fileno()) == (0, "goes on\n")
    assert len(log.read_text().splitlines()) == 200
