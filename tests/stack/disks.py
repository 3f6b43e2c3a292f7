"""Disks that are full, which one must be allowed to mount."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordlib import limits


def fill(ballast: Path) -> None:
    """To the last byte."""
    with ballast.open("ab", buffering=0) as file:
        size = limits.MIB
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a file system: a full disk cannot be had otherwise")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
