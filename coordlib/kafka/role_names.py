"""The names that fill rows of the table of rights (`roles.py`), and which of them may be granted.

Kafka has no right to "all but these": one to `*`, or to names that begin as the coordinator's own
do, is one to the coordinator's own. So what is written must be named more closely.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from coordlib.core.wire.own_topics import claims_prefix, own_topics
from coordlib.errors import SetupError

#: Places in the names of rows, each filled by what is named.
TOPIC, GROUP, COORDINATION = "{topic}", "{group}", "{claims}"
TRANSACTION, OUTPUT = "{transaction}", "{output}"
#: What fills each place.
OPTIONS: Final = {
    TOPIC: "--topics",
    GROUP: "--groups",
    COORDINATION: "--claims",
    TRANSACTION: "--transactional-ids",
    OUTPUT: "--outputs",
}
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME_LENGTH_MAX: Final = 249


def require_names(prefix: str, named: Mapping[str, Sequence[str]]) -> None:
    """Check what is named for a role.

    Args:
        prefix: of the coordinator's topics.
        named: by the place that it fills.

    Raises:
        SetupError: a name is none, or what may be written there is the coordinator's own.
    """
    for place in (TOPIC, OUTPUT):
        for name in named[place]:
            if name != "*" and not _TOPIC_NAME.fullmatch(name.removesuffix("*")):
                raise _names_no("topic", place, name)
    for place, what in ((GROUP, "group"), (TRANSACTION, "transactional id")):
        for name in named[place]:
            if not name or len(name.encode()) > _NAME_LENGTH_MAX or not name.isprintable():
                raise _names_no(what, place, name)
    for name in named[COORDINATION]:
        if not _TOPIC_NAME.fullmatch(name):
            mend = "Name one topic: --claims __marshal"
            raise SetupError("This names no coordination topic.", f"--claims {name[:200]!r}", mend)
    _refuse_own(prefix, named)


def _refuse_own(prefix: str, named: Mapping[str, Sequence[str]]) -> None:
    """Raises SetupError: a name that is written covers the coordinator's own. A producer of the
    job's transactional id ends the job, and whoever writes its topics answers in its place."""
    topics = sorted(own_topics(prefix))
    ids = [f"{prefix}-coordinator", f"{claims_prefix(prefix)}-coordinator"]
    for place, own in ((OUTPUT, topics), (COORDINATION, topics), (TRANSACTION, ids)):
        for name in named[place]:
            if covered := [each for each in own if _covers(name, each, is_id=own is ids)]:
                raise SetupError(
                    "This name covers the coordinator's own: whoever may write there can end the "
                    "job, or answer in its place.",
                    f"{OPTIONS[place]} {name}: {covered[0]}",
                    "Name what the programs of this role write, or the beginning of such names, "
                    "as billing-*",
                )


def _covers(name: str, own: str, *, is_id: bool) -> bool:
    """Whether a right to `name` is one to the coordinator's own name; jobs over a part of the
    shards have longer ids."""
    if name.endswith("*") and own.startswith(name[:-1]):
        return True
    return name == own or (is_id and name.startswith(f"{own}-"))


def _names_no(what: str, place: str, name: str) -> SetupError:
    is_any = "" if place in (OUTPUT, TRANSACTION) else ", or * for all"
    mend = f"Name a {what}, or the beginning of names (orders-*){is_any}."
    return SetupError(f"This names no {what}s.", f"{OPTIONS[place]} {name[:200]!r}", mend)
