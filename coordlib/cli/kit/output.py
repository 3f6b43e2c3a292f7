"""What commands print and ask: results on stdout, talk on stderr, as text or as one JSON object."""

import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Literal

from coordlib.errors import CoordError, SetupError
from coordlib.redaction import without

Format = Literal["text", "json"]

VERSION: Final = 1
MISSING: Final = "-"
GAP: Final = "  "
SECRET_LENGTH_MIN: Final = 8  # of what is taken out of results
LINE_LENGTH_MAX: Final = 1_000  # of what an error says
#: Unicode categories that a terminal acts upon or does not show: controls, formats (bidirectional
#: overrides, zero-width), surrogates, private use, line and paragraph separators.
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

#: Secrets of the command that runs: what it says may repeat what was typed, or sent.
_in_errors: set[str] = set()
_in_results: set[str] = set()


def now() -> datetime:
    """The time of an answer."""
    return datetime.now(UTC)


def visible(value: object) -> str:
    """A value as text that is safe on a terminal."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return time_text(value)
    return safe(without(str(value), _in_results))


def safe(text: str) -> str:
    """A text as a terminal may have it, in one line: what it acts upon or hides is an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _INVISIBLE and _is_in_charset(char):
        return char
    code = ord(char)
    if code < 0x100:
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_in_charset(char: str) -> bool:
    """Whether stdout can have it: terminals with other charsets than UTF-8 are still there."""
    try:
        char.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def time_text(time: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond: 2026-03-01T23:59:50.000Z."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def millis_text(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as `time_text`; None for none, and for what no calendar holds."""
    if epoch_ms is None:
        return None
    try:
        return time_text(datetime.fromtimestamp(epoch_ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def duration_text(duration_ms: int | None) -> str | None:
    """3000 -> `3.0s`, 190000 -> `3m10s`."""
    if duration_ms is None:
        return None
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f}s"
    minutes, seconds = divmod(round(duration_ms / 1000), 60)
    return f"{minutes}m{seconds:02d}s"


def counted(count: int, noun: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; the last one is not padded."""
    lines = [[visible(value) for value in row] for row in (headers, *rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headers))]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print(GAP.join(padded).rstrip())


def print_head(pairs: Mapping[str, object]) -> None:
    """A block of names and values, one to a line."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        print(f"{name.ljust(width)}{GAP}{visible(value)}")


def print_json(command: str, as_of_time: datetime | None = None, **fields: Any) -> None:
    """One object on one line, ASCII only, so that no terminal acts upon what is in it."""
    envelope = {
        "_command": command,
        "_version": VERSION,
        "as_of_time": time_text(as_of_time or now()),
    }
    print(json_text(envelope | fields))


def json_text(fields: Mapping[str, object]) -> str:
    """An object as JSON, without secrets in its texts; its keys and numbers stay as they are."""
    shown = _without_secrets(fields) if _in_results else fields
    return json.dumps(shown, default=_as_json_without_secrets, allow_nan=False)


def _without_secrets(value: object) -> object:
    if isinstance(value, str):
        return without(value, _in_results)
    if isinstance(value, Mapping):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value


def _as_json_without_secrets(value: object) -> str:
    return without(as_json(value), _in_results)


def jsonable(value: object) -> object:
    """A value of an SQL answer as JSON has it; numbers that JSON lacks become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value


def as_json(value: object) -> str:
    """A value that JSON has no type for, as text."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def print_line(line: str = "") -> None:
    """A sentence, or an empty line, on stdout; whatever names are in it."""
    print(safe(without(line, _in_results)))


def say(line: str) -> None:
    """Talk: a line on stderr, whatever names are in it."""
    print(safe(without(line, _in_results)), file=sys.stderr, flush=True)


def complain(what: str, where: str, hint: str) -> None:
    """An error: what happened, where, what to do next; one line each."""
    for part in (what, where, hint):
        for line in without(str(part), _in_errors).splitlines():
            if line.strip():
                say(shortened(visible(line)))


def hide(in_errors: Iterable[str], in_results: Iterable[str]) -> None:
    """Show these texts nowhere from now on.

    Args:
        in_errors: whatever may be a secret.
        in_results: what surely is one; a result must not be changed for less, nor for a short
            one: it may be a word, or a number, that results have anyway.
    """
    _in_errors.clear()
    _in_errors.update(_spelled(in_errors))
    _in_results.clear()
    long = (each for each in in_results if len(each) >= SECRET_LENGTH_MIN)
    _in_results.update(_spelled(long))


def _spelled(secrets: Iterable[str]) -> Iterator[str]:
    """As they are, and as JSON spells them."""
    for secret in secrets:
        yield secret
        yield json.dumps(secret)[1:-1]


def shortened(text: str) -> str:
    """A text that a terminal can show; an error may repeat any text that was typed."""
    if len(text) <= LINE_LENGTH_MAX:
        return text
    return f"{text[:LINE_LENGTH_MAX]} … ({len(text)} characters)"


def error_fields(problem: CoordError) -> dict[str, str]:
    """An error as JSON has it."""
    parts = {"what": problem.what, "where": problem.where, "hint": problem.hint}
    return {
        key: "\n".join(shortened(line) for line in without(str(part), _in_errors).splitlines())
        for key, part in parts.items()
    }


def confirm(what: str, where: str, yes: bool) -> None:
    """Return if the user agrees, by `--yes` or on the terminal.

    Raises:
        CoordError: the user does not.
        SetupError: there is no terminal to ask on.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SetupError(
            f"{what} cannot be undone, and there is no terminal to ask on.",
            where,
            "Nothing was done. Say --yes if it is meant.",
        )
    say(f"{what}: {where}. This cannot be undone. Go on? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CoordError("Nothing was done.", where, "Answer y, or say --yes.")
