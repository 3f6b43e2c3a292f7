"""The plan of each of the engine's topics, read from `coordlib/conf/topics.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coordlib.errors import SetupError
from coordlib.installation import conf_file
from coordlib.records.own_topics import LAG

#: Topics that may be lost and created again: no decision depends on them.
REPLACEABLE = frozenset({LAG})


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The required properties of one topic."""

    name: str  # without the prefix: "requests"
    partitions: Literal["shards", "responses"] | int
    config: Mapping[str, str]


def read_plans(path: Path | None = None) -> tuple[TopicPlan, ...]:
    """The plans of coordlib/conf/topics.toml, or of another file of that form.

    Raises:
        SetupError: there is no such file, or it is not TOML.
    """
    path = path or conf_file("topics.toml")
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(
            "The topics' plan cannot be read.",
            f"{path}: {error}",
            "Restore it, or install coordlib again.",
        ) from error
    return tuple(
        TopicPlan(name, topic["partitions"], table["defaults"] | topic["config"])
        for name, topic in table["topics"].items()
    )
