"""Heads of entities in the compacted topics, which newer code may have written."""

from typing import Any

import msgspec

from coordlib.core.engine.step import Kind, UnknownSavedVersion


class _Head(msgspec.Struct):
    """What any head in any version begins with. Newer code may write other types."""

    kind: Any = None
    v: Any = None


def load_head(kind: Kind, value: bytes) -> tuple[Any, str | None]:
    """The head as its kind decodes it; or None, and why this version cannot."""
    try:
        return kind.load(value), None
    except (UnknownSavedVersion, msgspec.MsgspecError):
        pass
    try:
        head = msgspec.json.decode(value, type=_Head)
    except msgspec.MsgspecError:
        return None, "no kind"
    return None, f"kind {head.kind}, version {head.v}"
