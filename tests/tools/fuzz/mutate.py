"""Mutations: of bytes that mean nothing, of JSON that is well formed, of big-endian numbers.

A valid input is taken as a tree and changed in its meaning, or as bytes and changed in its form,
or left as it is; a few are blown up to the largest size that is read: what is slow shows there.
Everything is drawn from one seeded generator: a worker's inputs can be drawn again.
"""

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

from coordlib import limits

#: One input in so many is blown up.
HUGE_EVERY: Final = 4_000
#: The share of inputs that are left as they are.
_KEPT: Final = 0.05
_JSON_SHARE: Final = 0.55

#: Values that some field of some type will not expect; raw ones no encoder would write.
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63)),
    *(1.5, 1e308, "", "a", "g", "t", "i", "a-t-0-0", "x" * 249, "x" * 250, "\u00e9" * 125),
    *("\x00", "\x1b[2J", "\u202e", "\u2028", "\U0001f600", "/", "'; drop table events; --"),
    *("=1+1", "..", "AA==", "%", "AAAAAQ"),
    *map(
        msgspec.Raw,
        (
            *(b"[]", b"{}", b"[[]]", b"[null]", b'{"":null}', b"[" + b"0," * 40 + b"0]"),
            *(b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b"+1", b"0x1", b"'a'", b"nul"),
            *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\xff"', b'"\xed\xa0\x80"'),
            *(b'"\\x"', b'"\\u00"', b'"\n"', b'"', b"", b"[", b"]", b"{}}", b"9" * 400, b"-"),
            *(b"[" * 40 + b"]" * 40, b'{"a":' * 40 + b"1" + b"}" * 40, b'{"a":1,"a":2}'),
            *(b"[" * 1200 + b"]" * 1200, b"1" + b"0" * 5000, b"1e-99999999999999999999"),
        ),
    ),
)
_FIELDS: Final = (
    *("v", "type", "id", "client", "group", "reply", "member", "generation", "instance"),
    *("protocols", "assignments", "members", "offsets", "topics", "partitions", "offset"),
    *("session_timeout_ms", "published", "metadata", "reason", "remain", "error", "x", ""),
)
_TOKENS: Final = (
    *(b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-", b"1e9"),
    *(b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\u", b"\\ud800", b"\n"),
    *(b'"type":"', b'"v":1,', b"//", b"/*", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff"),
)
_NUMBERS: Final = (-1, 0, 1, 2, 255, 2**15 - 1, 2**31 - 1, -(2**31), 70_000, 10**6)

_parse = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


class Mutator:
    """Draws inputs from valid ones."""

    def __init__(self, rnd: Random, valid: Sequence[bytes], is_json: bool) -> None:
        self._rnd, self._valid = rnd, valid
        self._of_form = _OF_TEXT if is_json else _OF_BINARY
        self._is_json = is_json

    def draw(self) -> bytes:
        """One input, at most a little over the largest that is read."""
        rnd = self._rnd
        value = rnd.choice(self._valid)
        kind = rnd.random()
        if kind < _KEPT:
            return value
        if self._is_json and kind < _JSON_SHARE:
            value = self._of_meaning(value)
        else:
            for _ in range(rnd.choice((1, 1, 1, 2, 4))):
                value = rnd.choice(self._of_form)(rnd, value, self._valid)
        return _blown_up(rnd, value) if rnd.randrange(HUGE_EVERY) == 0 else value

    def _of_meaning(self, value: bytes) -> bytes:
        try:
            tree = _parse(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return value  # a seed that is no JSON is changed in its form only
        rnd = self._rnd
        for _ in range(rnd.choice((1, 1, 2, 3))):
            tree = _changed(rnd, tree, rnd.choice(_ODD))
        return _write(tree)


def _changed(rnd: Random, tree: Any, odd: Any) -> Any:
    """The tree with one node changed, somewhere on a random way down."""
    if isinstance(tree, dict) and tree:
        return _changed_object(rnd, tree, odd)
    if isinstance(tree, list) and tree:
        return _changed_array(rnd, tree, odd)
    return odd


def _changed_object(rnd: Random, tree: dict[str, Any], odd: Any) -> dict[str, Any]:
    name, action = rnd.choice(list(tree)), rnd.random()
    if action < 0.65:
        is_leaf = rnd.random() < 0.4
        tree[name] = odd if is_leaf else _changed(rnd, tree[name], odd)
    elif action < 0.8:
        del tree[name]
    elif action < 0.9:
        tree[rnd.choice(_FIELDS)] = odd
    else:
        tree[rnd.choice(_FIELDS)] = tree[name]
    return tree


def _changed_array(rnd: Random, tree: list[Any], odd: Any) -> list[Any]:
    place, action = rnd.randrange(len(tree)), rnd.random()
    if action < 0.6:
        tree[place] = _changed(rnd, tree[place], odd)
    elif action < 0.75:
        del tree[place]
    elif action < 0.9:
        tree += [tree[place]] * rnd.choice((1, 2, 40))
    else:
        tree[place] = odd
    return tree


def crossed(rnd: Random, value: bytes, other: bytes) -> bytes:
    """A request with some of another's fields, or with values of a field's own type: readable,

    most times, and as no client would write it."""
    tree, donor = _parse(value), _parse(other)
    for _ in range(rnd.choice((1, 1, 2, 3))):
        name = rnd.choice(list(tree))
        if name == "type" and rnd.random() < 0.9:
            continue
        is_lent = name in donor and rnd.random() < 0.6
        tree[name] = donor[name] if is_lent else _alike(rnd, tree[name])
    return _write(tree)


def _alike(rnd: Random, value: Any) -> Any:
    """Another value of the same type, rather at the edges."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rnd.choice((value - 1, value + 1, 0, -1, 1, 6_000, 2**31 - 1))
    if isinstance(value, str):
        return rnd.choice(("", "a", "g", "i", "x" * 249, "\u00e9" * 70, value + "x", value[:-1]))
    if isinstance(value, list):
        return rnd.choice((value * 2, value[:-1], value[::-1], [_alike(rnd, v) for v in value]))
    if isinstance(value, dict):
        return {name: _alike(rnd, v) if rnd.random() < 0.5 else v for name, v in value.items()}
    return rnd.choice((None, "i", 0))


# -- of form ---------------------------------------------------------------------------------


def _flip(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    if not value:
        return bytes([rnd.randrange(256)])
    place = rnd.randrange(len(value))
    return value[:place] + bytes([value[place] ^ 1 << rnd.randrange(8)]) + value[place + 1 :]


def _insert(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    place = rnd.randrange(len(value) + 1)
    return value[:place] + rnd.choice(_TOKENS) + value[place:]


def _overwrite(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    place, token = rnd.randrange(len(value) + 1), rnd.choice(_TOKENS)
    return value[:place] + token + value[place + len(token) :]


def _cut_out(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    place = rnd.randrange(len(value) + 1)
    return value[:place] + value[place + rnd.randrange(1, 20) :]


def _truncate(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    return value[: rnd.randrange(len(value) + 1)]


def _splice(rnd: Random, value: bytes, valid: Sequence[bytes]) -> bytes:
    other = rnd.choice(valid)
    return value[: rnd.randrange(len(value) + 1)] + other[rnd.randrange(len(other) + 1) :]


def _repeat(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    place = rnd.randrange(len(value) + 1)
    part = value[place : place + rnd.randrange(1, 30)]
    return value[:place] + part * rnd.randrange(2, 20) + value[place:]


def _noise(rnd: Random, _value: bytes, _valid: Sequence[bytes]) -> bytes:
    return rnd.randbytes(rnd.randrange(60))


def _number(rnd: Random, value: bytes, _valid: Sequence[bytes]) -> bytes:
    """A length, a count or a version that lies."""
    kind, size = rnd.choice(((">h", 2), (">i", 4)))
    place, number = rnd.randrange(len(value) + 1), rnd.choice(_NUMBERS)
    number = (number + 2**15) % 2**16 - 2**15 if size == 2 else number
    return value[:place] + struct.pack(kind, number) + value[place + size :]


_OF_TEXT: Final[tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...]] = (
    *(_flip, _flip, _insert, _insert, _overwrite, _cut_out, _truncate, _splice, _repeat, _noise),
)
_OF_BINARY: Final = (*_OF_TEXT, _number, _number, _number, _number)


def _blown_up(rnd: Random, value: bytes) -> bytes:
    """Some part of it, again and again, up to a size; the rest stays where it was."""
    start = rnd.randrange(len(value) + 1)
    part = (
        value[start : start + rnd.choice((1, 2, 3, 6, 10, 20, 40))] or rnd.choice(_TOKENS) or b"["
    )
    size = min(int(limits.REQUEST_BYTES_MAX * rnd.random() ** 2), limits.REQUEST_BYTES_MAX + 64)
    blown = value[:start] + part * (size // len(part) + 1) + value[start:]
    if rnd.random() < 0.5:
        return blown
    # As an array of a ConsumerProtocol value whose count fits what follows.
    count = struct.pack(">i", size // len(part))
    return value[:2] + count + part * (size // len(part) + 1) + value[2:]
