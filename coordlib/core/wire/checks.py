"""Checks that several requests share and a schema cannot express: names, in bytes of UTF-8.

A `..._fault` is the sentence for the sender of a bad request, or None if nothing is wrong.
"""

import re
from collections.abc import Iterable
from typing import Final

from coordlib import limits

#: Control characters, and surrogates, which UTF-8 cannot encode.
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: Kafka's legal names of topics (`Topic.validate`).
_TOPIC: Final = re.compile(f"[A-Za-z0-9._-]{{1,{limits.NAME_LENGTH_MAX}}}")
#: A repeated partition would be answered again and again.
NAMED_TWICE: Final = "{} names one partition twice: name each once."


def is_name(text: str, bytes_max: int) -> bool:
    """1..bytes_max bytes of UTF-8 without control characters."""
    if not text or (not text.isprintable() and CONTROL.search(text)):
        return False
    return 4 * len(text) <= bytes_max or len(text.encode("utf-8", "replace")) <= bytes_max


def is_topic(name: str) -> bool:
    """Whether Kafka can have a topic of this name."""
    return name not in (".", "..") and _TOPIC.fullmatch(name) is not None


def no_name(field: str, bytes_max: int = limits.NAME_LENGTH_MAX) -> str:
    """The sentence about a field with something else than a name."""
    return f"{field} must have 1 to {bytes_max} bytes of UTF-8 without control characters."


def names_fault(
    field: str, names: Iterable[str], bytes_max: int = limits.NAME_LENGTH_MAX
) -> str | None:
    """What is wrong with these names of at most so many bytes; an empty one is bad."""
    for name in names:
        if not is_name(name, bytes_max):
            return no_name(field, bytes_max)
    return None


def optional_names_fault(field: str, names: Iterable[str | None]) -> str | None:
    """The same for fields in which an empty text and None mean that there is no name."""
    for name in names:
        if name and not is_name(name, limits.NAME_LENGTH_MAX):
            return no_name(field)
    return None
