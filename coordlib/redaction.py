"""Secrets in command lines and options: what may be shown of them, and which stand there in clear.

What looks like a secret is known by its name (`sasl.password`, `--api-token`), wherever in an
argument it stands, and also where `=` was mistyped.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

SECRET: Final = re.compile(
    r"(?i)password|secret|token|credential|jaas|access\.?key|key\.pem|keystore\.key"
)
REDACTED: Final = "***"

_NAME: Final = rf"[\w.\-]*(?:{SECRET.pattern.removeprefix('(?i)')})[\w.\-]*"
_ASSIGNED: Final = re.compile(rf"({_NAME}\s*[=:]\s*)(\S.*)", re.I | re.S)
#: A name whose value is the next argument, or was mistyped to be.
_ALONE: Final = re.compile(rf"(?:.*[=\s])?-*{_NAME}[=:]?", re.I | re.S)
#: As an option is meant to be given: `--kafka sasl.password=…`, `--kafka=sasl.password=…`.
_OPTION: Final = re.compile(rf"(?:--?[\w\-]+=|-X)?({_NAME})=(.+)", re.I | re.S)
_REFERENCE: Final = re.compile(r"\$\{ENV:(\w+)\}")
_LOGIN: Final = re.compile(r"(://)([^/@\s]+)(@)")  # s3://key:secret@host/…


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
        found.update(part for each in _ASSIGNED.finditer(argument) for part in _parts(each[2]))
        for login in _LOGIN.finditer(argument):
            found.update({login[2], login[2].rpartition(":")[2]})
        is_value = not is_value and _names_next(argument)
    names = [name for text in found for name in _REFERENCE.findall(text)]
    return {each for each in found | {os.environ.get(name, "") for name in names} if each}


def without(text: str, secrets: Iterable[str]) -> str:
    """A text in which none of the secrets stands, as whole words."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", REDACTED, text)
    return text


def in_clear(command: Sequence[str]) -> list[str]:
    """Names of the secrets that are given as options, and not by reference to the environment."""
    found = (_OPTION.fullmatch(argument) for argument in command)
    return [each[1] for each in found if each and not _REFERENCE.fullmatch(each[2])]


def warning_of(name: str) -> str:
    """What to say of a secret that was given in clear."""
    return (
        f"{name} is given in clear: everybody on this machine can see it in the list of "
        f"processes. Write '{name}=${{ENV:NAME}}', and set NAME in the environment."
    )


def _parts(value: str) -> Iterator[str]:
    """A value, its first word, and the secrets inside of it (of a JAAS line)."""
    yield value
    yield value.split(maxsplit=1)[0].strip("=:\"';") if value.strip() else ""
    for each in _ASSIGNED.finditer(value):
        yield from _parts(each[2])


def _redacted(argument: str) -> str:
    return _LOGIN.sub(rf"\1{REDACTED}\3", _ASSIGNED.sub(rf"\1{REDACTED}", argument))


def _names_next(argument: str) -> bool:
    return _ALONE.fullmatch(argument) is not None
