"""Folders named on a command line."""

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from coordlib.errors import SetupError

PATH_BYTES_MAX: Final = 4096  # Linux' PATH_MAX
_HOSTLESS: Final = ("file", "hdfs")  # this machine; the cluster's default name node


def folder_named(text: str, option: str, may_be_uri: bool = False) -> Path:
    """A folder named on a command line; `~` is the home folder.

    Raises:
        SetupError: the text is blank or has blanks around it, is no path, or an address without a
            host or bucket.
    """
    is_path = text.isprintable() and len(os.fsencode(text)) <= PATH_BYTES_MAX
    is_uri = "://" in text
    if (
        not text
        or text != text.strip()
        or not is_path
        or (is_uri and not (may_be_uri and _names_host(text)))
    ):
        raise _no_folder(option, text)
    try:
        return Path(text) if is_uri else Path(text).expanduser()
    except RuntimeError as problem:  # there is no such user
        raise _no_folder(option, text) from problem


def _no_folder(option: str, text: str) -> SetupError:
    return SetupError(
        "This names no folder.",
        f"{option} {text[:200]!r}",
        "Name a folder, without blanks around it; an address needs a host or bucket.",
    )


def _names_host(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    if parts.scheme in _HOSTLESS and parts.path.strip("/"):
        return True
    return bool(parts.scheme and parts.netloc.strip())
