"""How many states the automaton of an expression has: whether RE2 can match it cheaply.

RE2 matches in time linear in the name, but the factor is between 5 ns and 5 µs for each byte. It is
small while the deterministic automaton fits into RE2's memory, and large where that automaton
explodes: `.*a[ab]{40}` has 2**41 states in a program of 53 instructions. RE2 tells the size of the
program only, so the automaton is built here, and given up when it grows too large. Nothing is
matched with it.

The commonest syntax is read: characters, classes, groups, alternatives, repetition. Expressions
with anything else are valid, and of unknown size. Source: Glushkov's construction, one position for
each character that may be read; then subsets of positions.
"""

import string
from typing import Final, NamedTuple

#: Positions of an expression; RE2 itself repeats nothing more often.
_POSITIONS_MAX: Final = 1_100
#: Subsets looked at, times character classes. It bounds the time that this takes: some 20 ms.
_STEPS_MAX: Final = 60_000
#: Words of 8 bytes that RE2 has for the states of the automaton: a third of its memory, less what
#: is estimated too low here.
_WORDS_MAX: Final = 75_000
#: A state beside its positions and its transitions.
_STATE_WORDS: Final = 8
#: A position that takes more than ASCII: RE2 has an instruction for each range of first bytes.
_WIDE_WORDS: Final = 4
#: So few positions at a time are followed fast enough without an automaton.
_FEW: Final = 8

#: Bytes of names as bits; what is no ASCII is one kind.
_ALL: Final = (1 << 129) - 1
_OTHER: Final = 1 << 128


def _bits(characters: str) -> int:
    return sum(1 << ord(each) for each in dict.fromkeys(characters))


_WORD: Final = _bits(string.ascii_letters + string.digits + "_")
_ESCAPES: Final = {
    "d": _bits(string.digits),
    "w": _WORD,
    "s": _bits("\t\n\f\r "),
    "D": _ALL & ~_bits(string.digits),
    "W": _ALL & ~_WORD,
    "S": _ALL & ~_bits("\t\n\f\r "),
}


class Unread(ValueError):
    """The expression has syntax that is not read here, or too many positions."""


class _Part(NamedTuple):
    """A part of an expression: whether it may be empty, where it may begin and end."""

    is_empty: bool
    first: int
    last: int


_NOTHING: Final = _Part(True, 0, 0)


class Positions(NamedTuple):
    """An expression by its positions. Sets of positions, and of kinds of bytes, are bits."""

    #: What each position takes.
    takes: list[int]
    #: Which positions may follow each.
    follow: list[int]
    whole: _Part


def is_small(text: str) -> bool:
    """Whether names are matched fast, whatever they are. `text`: valid for RE2."""
    try:
        return _is_small(read(text))
    except Unread:
        return False


def read(text: str) -> Positions:
    """The positions of an expression that RE2 takes. Raises Unread."""
    reader = _Reader(text)
    whole = reader.whole()
    return Positions(reader.takes, reader.follow, whole)


def kind_of(byte: int) -> int:
    """The kind of a byte of a name, as a bit."""
    return 1 << byte if byte < 128 else _OTHER


class _Reader:
    """Reads an expression into positions: what each of them takes, and what may follow it."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.takes: list[int] = []
        self.follow: list[int] = []

    def whole(self) -> _Part:
        part = self._alternatives()
        if self._at != len(self._text):
            raise Unread
        return part

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise Unread
        self._at += 1
        return character

    def _alternatives(self) -> _Part:
        part = self._sequence()
        while self._peek() == "|":
            self._at += 1
            other = self._sequence()
            part = _Part(
                part.is_empty or other.is_empty, part.first | other.first, part.last | other.last
            )
        return part

    def _sequence(self) -> _Part:
        part = _NOTHING
        while self._peek() not in ("", "|", ")"):
            part = self._join(part, self._repeated())
        return part

    def _repeated(self) -> _Part:
        start = self._at
        part = self._atom()
        least, most = self._quantifier()
        if (least, most) == (1, 1):
            return part
        after = self._at
        if most == 0:
            part = _NOTHING
        copies = max(most or least, 1)
        for number in range(1, copies + 1):
            if number > 1:  # the same again, with positions of its own
                self._at = start
                copy = self._atom()
            else:
                copy = part
            if most is None and number == copies:
                copy = self._loop(copy)
            if number > least:
                copy = copy._replace(is_empty=True)
            part = copy if number == 1 else self._join(part, copy)
        self._at = after
        return part

    def _quantifier(self) -> tuple[int, int | None]:
        """How often at least, and at most; None: without bound."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        mark = self._peek()
        found: tuple[int, int | None] = (1, 1)
        if mark in simple:
            self._at += 1
            found = simple[mark]
        elif mark == "{":
            inside, closing, _ = self._text[self._at + 1 :].partition("}")
            low, comma, high = inside.partition(",")
            if not (closing and low.isdecimal() and (high.isdecimal() or not high)):
                raise Unread
            self._at += len(inside) + 2
            found = int(low), (int(high) if high else None) if comma else int(low)
        else:
            return found
        if self._peek() == "?":  # as few as possible: the same names
            self._at += 1
        return found

    def _atom(self) -> _Part:
        character = self._next()
        if character == "(":
            if self._peek() == "?":
                self._at += 1
                if self._next() != ":":
                    raise Unread
            part = self._alternatives()
            if self._next() != ")":
                raise Unread
            return part
        if character == "[":
            return self._position(self._class())
        if character == ".":
            return self._position(_ALL & ~(1 << ord("\n")))
        if character == "\\":
            return self._position(self._escape())
        if character in "^$*+?{":
            raise Unread
        return self._position(_bit(character))

    def _escape(self) -> int:
        character = self._next()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isalnum() or not character.isascii():
            raise Unread
        return _bit(character)

    def _class(self) -> int:
        is_negated = self._peek() == "^"
        if is_negated:
            self._at += 1
        found, is_first = 0, True
        while (character := self._next()) != "]" or is_first:
            is_first = False
            if character == "[":
                raise Unread  # [:alpha:]
            low = self._escape() if character == "\\" else _bit(character)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._next()
                if high in "[\\" or character == "\\" or not (character + high).isascii():
                    raise Unread
                low = sum(1 << code for code in range(ord(character), ord(high) + 1))
            found |= low
        return _ALL & ~found if is_negated else found

    def _position(self, takes: int) -> _Part:
        if len(self.takes) >= _POSITIONS_MAX:
            raise Unread
        self.takes.append(takes)
        self.follow.append(0)
        here = 1 << (len(self.takes) - 1)
        return _Part(False, here, here)

    def _join(self, part: _Part, other: _Part) -> _Part:
        self._link(part.last, other.first)
        return _Part(
            part.is_empty and other.is_empty,
            part.first | (other.first if part.is_empty else 0),
            other.last | (part.last if other.is_empty else 0),
        )

    def _loop(self, part: _Part) -> _Part:
        self._link(part.last, part.first)
        return part

    def _link(self, ends: int, begins: int) -> None:
        for position in _positions(ends):
            self.follow[position] |= begins


def _is_small(found: Positions) -> bool:
    """Whether the subsets that can be reached are few, or have few positions each."""
    classes = _classes(found.takes)
    wide = sum(1 << place for place, bits in enumerate(found.takes) if bits & _OTHER)
    known = {found.whole.first}
    waiting = [found.whole.first]
    words, widest = 0, 0
    for _ in range(_STEPS_MAX // (len(classes) + 1)):
        if not waiting:
            return True
        state = waiting.pop()
        width = state.bit_count()
        words += _STATE_WORDS + len(classes) + width
        words += (_WIDE_WORDS - 1) * (state & wide).bit_count()
        widest = max(widest, width)
        if words > _WORDS_MAX and widest > _FEW:
            return False
        for taking in classes:
            reached = 0
            for position in _positions(state & taking):
                reached |= found.follow[position]
            if reached not in known:
                known.add(reached)
                waiting.append(reached)
    return False


def _classes(takes: list[int]) -> list[int]:
    """For each kind of bytes the positions that take it; kinds that all take alike are one."""
    places: dict[int, int] = {}
    for place, bits in enumerate(takes):
        places[bits] = places.get(bits, 0) | 1 << place
    kinds: dict[int, None] = {}
    for byte in range(129):
        kinds[sum(at for bits, at in places.items() if bits >> byte & 1)] = None
    return list(kinds)


def _positions(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


def _bit(character: str) -> int:
    return kind_of(ord(character))
