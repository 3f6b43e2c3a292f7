"""Why a query of Spark failed, in one line.

What Python raises inside a batch comes back in Java's words: the first line says that a proxy has
raised something, and the reason stands at the end of a traceback some pages below, in front of
Java's own. So whoever shows one line shows this one.
"""

import re
from typing import Final

_RETURN: Final = "Return Message: "
_TRACEBACK: Final = "Traceback (most recent call last):\n"
#: `py4j` writes the exception of a call of Java's in a line of its own.
_JAVA: Final = re.compile(r"An error occurred while calling [^\n]*\n: ([^\n]+)")
#: Where the message of an exception ends, and the stack of somebody else begins.
_END: Final = re.compile(r"\n\s*\n|\n\tat |\n\s*(?:JVM stacktrace|Caused by):|\n=== ")
LENGTH_MAX: Final = 500
#: What operating systems say; a pattern.
DISK_FULL: Final = "No space left on device|Disk quota exceeded"


def reason_of(problem: BaseException) -> str:
    """The reason in one line; of any other exception the first line of its text."""
    text = str(problem)
    _, is_proxys, cause = text.partition(_RETURN)
    if is_proxys and _TRACEBACK in cause:
        text = _raised_in(cause.rpartition(_TRACEBACK)[2])
    if found := _JAVA.search(text):
        text = found[1]
    elif not is_proxys:
        text = text.partition("\n")[0]
    return " ".join(text.split())[:LENGTH_MAX] or type(problem).__name__


def _raised_in(traceback: str) -> str:
    """The exception behind the frames of a traceback, with its message."""
    lines = traceback.splitlines(keepends=True)
    first = next((n for n, line in enumerate(lines) if not line.startswith((" ", "\t"))), 0)
    return _END.split("".join(lines[first:]), maxsplit=1)[0]
