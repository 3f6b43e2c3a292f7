"""Families: the kinds that share a space of names, and what a shard keeps for all of them.

A consumer group, a cluster of brokers and a transactional id may have the same name: each family
has a space of its own. Within a space an entity is of one kind, and an empty one may change it.

The shard itself answers ApiVersions, and any shard does: the question is about no group.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, Union

import msgspec

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.effects import REQUESTS, At
from coordlib.core.engine.rows import Row
from coordlib.core.engine.step import NOT_INDEXED, Decide, Kind, answer
from coordlib.core.engine.tables import Table
from coordlib.core.wire import api
from coordlib.core.wire.envelope import RequestReader


class Input(NamedTuple):
    """A topic that shards read, one partition each."""

    #: Names it in coordinates, in positions and in a query's rows.
    letter: str
    #: Without the prefix.
    topic: str
    #: Why a request or control record must not stand there; None: it may. Beside the requests,
    #: records of the job are refused, and requests whose answers may have to wait.
    fault: Callable[[api.Request | api.Control], str | None]


#: The first input of every shard. Its records alone move the clock.
REQUESTS_INPUT: Final = Input(REQUESTS, "requests", lambda _: None)

#: Requests and job records that the shard itself judges.
OF_THE_SHARD: Final = (api.ApiVersions, api.ReleaseQuarantine, api.FromShard, api.Tick)


class NoSettings(msgspec.Struct, frozen=True):
    """Of a family that has none."""


class Family:
    """One space of names in one shard, during one batch. The defaults keep nothing."""

    #: First part of the keys of its rows. Requests name it (`Request.entity`).
    SPACE: ClassVar[str]
    #: The first one judges what could concern any kind while there is no such entity.
    KINDS: ClassVar[tuple[Kind, ...]]
    #: The compacted topic of the heads, without the prefix.
    HEADS: ClassVar[str]
    #: Whether the shard's blob has its state also before it has had any entity.
    IS_ALWAYS_STORED: ClassVar[bool] = True
    #: Records of the job's driver that it judges.
    JOB_RECORDS: ClassVar[tuple[type[api.Control], ...]] = ()
    #: Of these, the ones whose steps change entries alone: an entity that is set aside takes them,
    #: too, since what they say would not come again.
    NOTED: ClassVar[tuple[type[api.Control], ...]] = ()
    #: Inputs beside the requests. In each batch they are judged after those, in this order.
    INPUTS: ClassVar[tuple[Input, ...]] = ()

    #: Its settings: a section of the configuration, and what was loaded by it. Has defaults.
    SETTINGS: ClassVar[type[msgspec.Struct]] = NoSettings

    def __init__(self, stored: msgspec.Raw, settings: Any) -> None:
        """`stored`: from the shard's blob; NOT_INDEXED: there is none. `settings`: SETTINGS."""
        self.stored, self.settings = stored, settings
        #: What a step may read beside its entity.
        self.context: Any = None

    @property
    def entities_max(self) -> int:
        """How many entities it may have in a shard."""
        return limits.GROUPS_PER_SHARD_MAX

    def limits(self) -> Mapping[str, int]:
        """The bounds of its requests, for ApiVersions; named as in `limits`, in lower case."""
        return {}

    def state(self) -> Any:
        """For the shard's blob; None: it keeps nothing, and the blob does not name it."""
        return None

    @classmethod
    def restored(
        cls, _values: Mapping[str, tuple[Kind, Any]], _progress: Mapping[bytes, bytes]
    ) -> Any:
        """The state as far as the heads, by name, and the job's own records have it; see
        `state.py`."""
        return None

    @classmethod
    def tables(cls) -> dict[str, Table]:
        """The tables of all its kinds, by name."""
        return {table.name: table for kind in cls.KINDS for table in kind.TABLES}

    @classmethod
    def head_key(cls, name: str) -> bytes:
        """The key of an entity's head in the topic."""
        return name.encode()

    @classmethod
    def head_name(cls, key: bytes) -> str | None:
        """The entity whose head has this key; None: it is the key of an entry (`Table.place`)."""
        return key.decode()

    @classmethod
    def is_published(cls, _topic: str, _key: bytes) -> bool:
        """Whether a key of one of its topics is of a record that only others read (fx.Publish).

        A restore leaves such records out. A key that is of nobody refuses it.
        """
        return False

    def must_look_again(self) -> bool:
        """Whether settings changed by which the rows' `next_maintenance_ms` were found.

        No other fact may depend on settings: a rebuild finds facts without them.
        """
        return False

    def context_of_new(self, _at: At) -> Any:
        """`context`, for a step while there is no entity of that name."""
        return self.context

    def created(self, at: At) -> None:
        """An entity was made at this record."""

    def judge(
        self, record: Any, rows: Iterable[tuple[str, Row]]
    ) -> Iterable[tuple[str, Decide | Exception]]:
        """A job record: the steps that follow from it, by the entity's name and in order.

        `rows`: the family's, by name; to be read once, and only if something changed.

        With an entity that could not be asked comes what it raised: it is set aside.  # INV-42
        """
        raise NotImplementedError(f"{self.SPACE}: {type(record).__name__}, {rows}")

    def heard(
        self, _shard: int, _number: int, _rows: Iterable[tuple[str, Row]]
    ) -> Iterable[tuple[str, Decide]]:
        """A shard has judged all messages up to this one: the steps that waited for that, in order.

        `_rows`: the family's, by name; to be read once. An entity that is set aside catches up when
        it is released (`Kind.released`).
        """
        return ()


class Registry:
    """The families of a shard. One object for a whole job; keeps no state."""

    def __init__(self, *families: type[Family]) -> None:
        """Raises ValueError when two families, or two kinds, have one name."""
        self.families: Final = {family.SPACE: family for family in families}
        self.kinds: Final = {kind.NAME: kind for family in families for kind in family.KINDS}
        if len(self.kinds) < sum(len(family.KINDS) for family in families):
            raise ValueError("Two kinds have one name.")
        if len(self.families) < len(families):
            raise ValueError("Two families have one space.")
        inputs = (REQUESTS_INPUT, *(each for family in families for each in family.INPUTS))
        #: What a shard reads, by letter, in the order in which it is judged.
        self.inputs: Final = {each.letter: each for each in inputs}
        if len(self.inputs) < len(inputs) or len({each.topic for each in inputs}) < len(inputs):
            raise ValueError("Two inputs have one letter, or one topic.")
        if any(not re.fullmatch("[a-z]", letter) for letter in self.inputs):
            raise ValueError("An input's letter is one of a to z.")
        #: The spaces whose families keep something, or look at what changed.
        self.stateful: Final = [
            family.SPACE
            for family in families
            if family.state is not Family.state
            or family.must_look_again is not Family.must_look_again
        ]
        #: The tables of each space, by name.
        self.tables: Final = {family.SPACE: family.tables() for family in families}
        if len({family.HEADS for family in families}) < len(families):
            raise ValueError("Two families keep their heads in one topic: names would meet.")
        if any(self.families[kind.SPACE] is not f for f in families for kind in f.KINDS):
            raise ValueError("A kind is in another space than its family.")

    @cached_property
    def _kinds_of(self) -> dict[tuple[str, type[Any] | None], list[Kind]]:
        """The kinds of a space that judge such requests. Asked for each request of a new name."""
        found: dict[tuple[str, type[Any] | None], list[Kind]] = {}
        for kind in self.kinds.values():
            for request in kind.handlers:
                found.setdefault((kind.SPACE, request), []).append(kind)
        return found

    def first_kind(self, space: str, request: type[Any]) -> Kind | None:
        """The kind that judges it where the entity's own does not; None: no kind does."""
        kinds = self._kinds_of.get((space, request))
        return kinds[0] if kinds else None

    def only_kind(self, space: str, request: type[Any] | None) -> str | None:
        """The kind that alone has such requests; None: several have them, or none has."""
        kinds = self._kinds_of.get((space, request), ())
        return kinds[0].NAME if len(kinds) == 1 else None

    def first_to_hear(self, space: str, message: type[Any]) -> Kind | None:
        """The kind that judges such messages where there is no entity; None: no kind does."""
        kinds = self.families[space].KINDS if space in self.families else ()
        return next((kind for kind in kinds if message in kind.MESSAGES), None)

    @property
    def has_messages(self) -> bool:
        """Whether any kind judges messages of other shards: else no channel is ever used."""
        return any(kind.MESSAGES for kind in self.kinds.values())

    @cached_property
    def read_message(self) -> Callable[[bytes | msgspec.Raw], Any]:
        """Bytes to a message that is judged here. Raises msgspec.MsgspecError."""
        types = tuple({each: None for kind in self.kinds.values() for each in kind.MESSAGES})
        return msgspec.json.Decoder(Union[types or (None,)]).decode  # noqa: UP007

    def families_of(self, record: type[Any]) -> list[str]:
        """The spaces whose families judge such records of the driver."""
        return [space for space, each in self.families.items() if record in each.JOB_RECORDS]

    @cached_property
    def reader(self) -> RequestReader:
        """Bytes to the requests and records that are judged here, and no others."""
        types: dict[type[Any], None] = dict.fromkeys(OF_THE_SHARD)
        for family in self.families.values():
            types |= dict.fromkeys(family.JOB_RECORDS)
            for kind in family.KINDS:
                types |= dict.fromkeys(kind.handlers)
        return RequestReader(tuple(types))


#: Bounds of all requests, whatever they are about.
_OF_ALL: Final[Mapping[str, int]] = {
    "client_length_max": limits.CLIENT_LENGTH_MAX,
    "correlation_id_length_max": limits.CORRELATION_ID_LENGTH_MAX,
    "name_length_max": limits.NAME_LENGTH_MAX,
    "reason_length_max": limits.REASON_LENGTH_MAX,
    "request_bytes_max": limits.REQUEST_BYTES_MAX,
}


class Families(dict[str, Family]):
    """Of one shard, by space. One that keeps nothing is made when it is asked for."""

    #: Of the shard: its registry, what its blob has of them, their settings.
    begin: tuple[Registry, Mapping[str, msgspec.Raw], Mapping[str, Any]]

    def __missing__(self, space: str) -> Family:
        registry, stored, given = self.begin
        family, settings = registry.families[space], given.get(space)
        made = self[space] = family(
            stored.get(space, NOT_INDEXED), family.SETTINGS() if settings is None else settings
        )
        return made


def api_versions(
    at: At, request: api.ApiVersions, registry: Registry, families: Iterable[Family]
) -> fx.Respond:
    """The answer; it changes nothing."""
    bounds = dict(_OF_ALL)
    for family in families:
        bounds |= family.limits()
    in_order = {name: bounds[name] for name in sorted(bounds)}
    return answer(request, at, types=registry.reader.fields, limits=in_order)
