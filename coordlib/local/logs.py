"""The end of a log file, for error messages."""

from pathlib import Path


def size_of(path: Path) -> int:
    """Bytes of a log so far; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, count: int, since: int = 0) -> str:
    """The last lines, of those written after byte `since`; empty if there is no log."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(since)
        text = log.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-count:])
