"""Which coordination topic a command of `coord claims` means, and what such commands share."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from coordlib.cli.kit.names import require_topic
from coordlib.cli.kit.where import Where, WhereTables
from coordlib.core.wire.own_topics import COORDINATION_TOPIC
from coordlib.errors import SetupError

if TYPE_CHECKING:
    from coordlib.client.claims.survey import Survey
    from coordlib.client.claims.view import LogView

TOPIC_VARIABLE: Final = "COORD_CLAIMS_TOPIC"
_DURATION: Final = re.compile(r"([0-9]{1,9})(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def require_claims_topic(_: Any, name: str | None) -> None:
    """Raises SetupError for what is no topic, or names an interval beyond the bounds."""
    if name is None:
        return
    from coordlib.core.wire.marshal import heartbeat_interval_ms

    require_topic(_, name)
    try:
        heartbeat_interval_ms(name)
    except ValueError as problem:
        raise SetupError(
            str(problem), f"--claims-topic {name[:200]!r}", "Name another."
        ) from problem


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhereClaims(Where):
    """Where to look, with the coordination topic."""

    claims_topic: Annotated[
        str, Parameter(env_var=TOPIC_VARIABLE, validator=require_claims_topic)
    ] = COORDINATION_TOPIC
    """The coordination topic."""

    @contextmanager
    def survey(self) -> "Iterator[Survey]":
        """The coordination topic, opened. Raises CannotReach, SetupError."""
        from coordlib.client.claims.survey import Survey

        self.reach()
        survey = Survey(self.quiet_client(), self.claims_topic, self.topic_prefix())
        try:
            yield survey
        finally:
            survey.close()

    def quiet_client(self) -> dict[str, Any]:
        """librdkafka's options, without its own lines on stderr: ours say the same."""
        return {**self.client(), "log_level": 0}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhereClaimsTables(WhereTables):
    """Where the history of claims lies: it is asked of tables, not of the coordination topic."""


CLAIMS_HERE: Final = WhereClaims()
CLAIMS_TABLES_HERE: Final = WhereClaimsTables()


def duration_s(_: Any, tokens: Any) -> int:
    """`90s`, `10m`, `2h`, `1d` as seconds. Raises ValueError for what is none."""
    (token,) = tokens
    found = _DURATION.fullmatch(token.value)
    if found is None:
        raise ValueError(f'"{token.value[:100]}" is not a time like 90s, 10m, 2h or 1d.')
    return int(found[1]) * _SECONDS[found[2]]


Duration = Annotated[int, Parameter(converter=duration_s)]


def as_of(views: "dict[int, LogView]") -> str:
    """`m0-12 m3-84213`: the newest record that was judged of each coordination partition."""
    read = [(number, view.position - 1) for number, view in sorted(views.items()) if view.position]
    return " ".join(f"m{number}-{offset}" for number, offset in read) or "an empty log"
