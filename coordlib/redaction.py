"""Secrets in command lines and options: hide them, and find those given in clear.

A secret is recognised by its name (`sasl.password`, `--api-token`), wherever in an argument it
stands, and also where `=` was mistyped: behind a name that begins an argument all is its value. An
argument may be long: everything here takes time in proportion to its length.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from string import punctuation
from typing import Final

SECRET: Final = re.compile(
    r"(?i)pass?word|passwd|passphrase|secret|token|credential|jaas|access\.?key|key\.pem|keystore\.key"
)
REDACTED: Final = "***"

_NAME: Final = re.compile(r"[\w.\-]+")
_BEFORE_VALUE: Final = re.compile(r"\s*[=:]\s*(?=\S)")
#: The name that begins an argument, perhaps behind its option, and what stands between the two.
_BEGIN: Final = re.compile(
    r"\s*(?:-X\s*|--?[\w\-]+[=\s]\s*)?([\w.\-]+)[^\w.\-=:](?=.*\S)", re.DOTALL
)
#: The begin of a name that may be shown of an argument whose form is wrong.
_DOTTED: Final = re.compile(r"\s*([a-z_]+(?:\.[a-z_]+)+)")
_REFERENCE: Final = re.compile(r"\$\{ENV:(\w+)\}")
_LOGIN: Final = re.compile(r"(://)([^/@\s]+)(@)")  # s3://key:secret@host/…
_LONG: Final = 8  # characters; shorter secrets are looked for as whole words only


def redacted(command: Sequence[str]) -> list[str]:
    """A command that may be shown: the values of anything that looks like a secret are hidden."""
    shown: list[str] = []
    is_value = False
    for argument in command:
        shown.append(REDACTED if is_value else _redacted(argument))
        is_value = not is_value and _names_next(argument)
    return shown


def secrets_of(command: Sequence[str]) -> set[str]:
    """Every text that `redacted` hides, and the values of the environment that it refers to."""
    found: set[str] = set()
    is_value = False
    for argument in command:
        if is_value:
            found.update(_parts(argument))
        elif (begin := _value_at(argument)) is not None:
            found.update(_parts(argument[begin:]))
        for login in _LOGIN.finditer(argument):
            found.update({login[2], login[2].rpartition(":")[2]})
        is_value = not is_value and _names_next(argument)
    names = {name for text in found for name in _REFERENCE.findall(text)}
    return {each for each in found | {os.environ.get(name, "") for name in names} if each}


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with all secrets replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LONG:
            text = text.replace(secret, REDACTED)
        else:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED, text)
    return text


def in_clear(command: Sequence[str]) -> dict[str, str]:
    """The secrets that are given as options, and not by reference to the environment, by name."""
    found = {}
    for argument in command:
        name, _, value = argument.partition("=")
        if name.startswith("-") and "=" in value:  # --kafka=sasl.password=…
            name, _, value = value.partition("=")
        name = name.removeprefix("-X").lstrip("-")
        is_secret = _NAME.fullmatch(name) and SECRET.search(name)
        if is_secret and value and not _REFERENCE.fullmatch(value):
            found[name] = value
    return found


def name_alone(argument: str) -> str:
    """What may be shown of an argument that is no `key=value`: its name, if it begins with one. All
    else may be a secret, also what is written together with a secret's name."""
    name = _DOTTED.match(argument)
    if name is None:
        return REDACTED
    secret = SECRET.search(name[1])
    shown = name[1] if secret is None else name[1][: secret.end()]
    return shown if shown == argument.strip() else f"{shown} {REDACTED}"


def warning_of(name: str) -> str:
    """The warning about a secret that was given in clear."""
    hint = f"Write '{name}=${{ENV:NAME}}', and set NAME in the environment."
    if name.startswith("spark."):
        hint = "Write it into a file that only you can read: --properties-file FILE."
    return (
        f"{name} is given in clear: everybody on this machine can see it in the list of "
        f"processes. {hint}"
    )


def _redacted(argument: str) -> str:
    begin = _value_at(argument)
    shown = argument if begin is None else argument[:begin] + REDACTED
    return _LOGIN.sub(rf"\1{REDACTED}\3", shown)


def _value_at(text: str) -> int | None:
    """Where the value of the first secret begins; it goes on to the end."""
    return next(_values_at(text), None)


def _values_at(text: str) -> Iterator[int]:
    begin = _BEGIN.match(text)
    if (
        begin is not None
        and SECRET.search(begin[1])
        and not _BEFORE_VALUE.match(text, begin.end(1))
    ):
        yield begin.end()
    for name in _NAME.finditer(text):
        if SECRET.search(name[0]) and (before := _BEFORE_VALUE.match(text, name.end())):
            yield before.end()


def _names_next(argument: str) -> bool:
    """Whether the value of a secret is the next argument, or was mistyped to be."""
    name = re.split(r"[=\s]", argument.rstrip("=:"))[-1]
    return SECRET.search(name) is not None and _NAME.fullmatch(name) is not None


def _parts(value: str) -> Iterator[str]:
    """A value, its first word, and the first words of the secrets inside of it (of a JAAS line)."""
    yield value
    for begin in (0, *_values_at(value)):
        word = re.match(r"\s*(\S*)", value[begin : begin + _WORD_LENGTH_MAX])
        text = word[1] if word else ""
        yield from (text.strip("=:\"';"), text.strip(punctuation))


_WORD_LENGTH_MAX: Final = 4_096
