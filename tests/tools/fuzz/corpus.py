"""A corpus of inputs, one per way to be judged: what runs begin with, and what tests repeat."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Larger inputs are found again from smaller ones.
VALUE_BYTES_MAX: Final = 200


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """An input, and what its wall says of it."""

    target: str
    verdict: str
    value: bytes


def read(path: Path) -> list[Found]:
    """The corpus in a file, one JSON line for each; nothing if there is no file."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Found(row[0], row[1], base64.b64decode(row[2])) for row in rows]


def write(path: Path, found: dict[tuple[str, str], bytes]) -> int:
    """Write what was found, the small ones; returns how many."""
    kept = sorted(
        Found(target, verdict, value)
        for (target, verdict), value in found.items()
        if len(value) <= VALUE_BYTES_MAX
    )
    lines = [
        json.dumps([each.target, each.verdict, base64.b64encode(each.value).decode()]) + "\n"
        for each in kept
    ]
    path.write_text("".join(lines))
    return len(lines)
