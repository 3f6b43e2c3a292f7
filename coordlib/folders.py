"""Folders that somebody names on a command line."""

import os
from pathlib import Path
from typing import Final

from coordlib.errors import SetupError

PATH_BYTES_MAX: Final = 4096  # Linux' PATH_MAX


def folder_named(text: str, option: str, may_be_uri: bool = False) -> Path:
    """A folder that somebody named on a command line.

    Raises:
        SetupError: the text is empty, or no path.
    """
    is_path = text.isprintable() and len(os.fsencode(text)) <= PATH_BYTES_MAX
    if not text or not is_path or ("://" in text and not may_be_uri):
        raise SetupError("This names no folder", f"{option} {text[:200]!r}", "Name a folder.")
    return Path(text)
