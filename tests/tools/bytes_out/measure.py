"""What a case is: an input at its worst, and what follows from it, measured."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec

from coordlib import limits
from coordlib.core.engine.effects import FREE_BYTES, FREE_SHARE, REQUESTS, Output, bytes_max
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, claims
from coordlib.job.batch import WRITTEN_SHARE_OF_OTHERS
from tests.tools.driving import SETTINGS, Conversation

PAGE: Final = Path("tests/BYTES.md")
#: The longest names, which JSON writes twice as long.
NAME: Final = '"' * limits.NAME_LENGTH_MAX
CLIENT: Final = '"' * limits.CLIENT_LENGTH_MAX
ID: Final = '"' * limits.CORRELATION_ID_LENGTH_MAX
#: A topic that Kafka can have, as names of clusters' topics must be.
TOPIC: Final = "t" * limits.NAME_LENGTH_MAX
#: Members, rows and partitions of a case.
MANY: Final = 200
ROWS: Final = 1_000
PARTITIONS: Final = 100
#: How many times as many there can be: rows of a commit, of a pending one, or of a line of history;
#: offsets of a group; partitions of a cluster, and those that a request names.
ALL_ROWS: Final = limits.OFFSETS_PER_REQUEST_MAX // ROWS
ALL_OFFSETS: Final = limits.OFFSETS_PER_GROUP_MAX // ROWS
ALL_PARTITIONS: Final = limits.CLUSTER_PARTITIONS_MAX // PARTITIONS
ALL_NAMED: Final = limits.ROWS_PER_REQUEST_MAX // PARTITIONS
#: Whose steps never wait, and what they are bounded by.
MEMBERS: Final = "what members are asked for"
JOB: Final = "what the job tells"
#: The letter of the claims' log.
CLAIMED: Final = "m"
PRODUCTION: Final = msgspec.structs.replace(SETTINGS, checks_invariants=False)
WORDS: Final[dict[str, Any]] = {"id": ID, "group": NAME}


class Judged(NamedTuple):
    """What one case has come to."""

    #: Bytes of the records.
    came: int
    #: Bytes of the outputs, and of them those that are written once per batch.
    wrote: int
    saved: int
    #: Bytes of the shard's state, before or after.
    kept: int
    records: int
    #: Bytes of the outputs where the shard has said twice what it may; -1: not asked.
    when_full: int

    @property
    def free(self) -> int:
        """So many outputs are planned for, as nothing refuses them."""
        return FREE_BYTES * self.records + FREE_SHARE * self.came

    @property
    def free_beside(self) -> int:
        """The same of records of `coord.offsets`."""
        return FREE_BYTES * self.records + WRITTEN_SHARE_OF_OTHERS * self.came


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One input at its worst."""

    #: Of the wire, or what takes its place.
    type: str
    what: str
    #: A shard, and the records that follow.
    make: Callable[[], tuple[Any, list[Any]]]
    topic: str = REQUESTS
    #: Milliseconds that pass before each record.
    after_ms: int = 0
    #: So many times as large can the outputs of one record be.
    times: int = 1
    #: Why nothing refuses what it writes beyond what is planned for; and how many times the bytes
    #: that the shard keeps this can be at most.
    otherwise: str = ""
    kept_times: int = 0

    @functools.cache  # noqa: B019  # cases are few, and live as long as the process
    def judged(self) -> Judged:
        """Play it, once."""
        first = self._play(is_full=False)
        if self.otherwise or self.topic != REQUESTS or first.wrote <= first.free:
            return first
        return first._replace(when_full=self._play(is_full=True).wrote)

    def bound(self, judged: Judged) -> str:
        """What bounds its outputs; "": nothing does."""
        wrote = judged.wrote + (judged.saved if self.topic == CLAIMED else 0)
        if wrote <= judged.free:
            return "the plan: 6 KiB, and twice its bytes"
        if self.topic == COMMITS:
            is_planned = wrote <= judged.free_beside
            return f"the plan: {WRITTEN_SHARE_OF_OTHERS} times its bytes" if is_planned else ""
        if self.otherwise:
            is_small = wrote <= self.kept_times * judged.kept
            kept = f"{self.otherwise}: {self.kept_times} times the bytes of the groups"
            return kept if is_small else ""
        return "it waits" if 0 <= judged.when_full <= judged.free else ""

    def _play(self, is_full: bool) -> Judged:
        talk, requests = self.make()
        talk.end_batch()
        before = len(talk.shard.encode())
        if is_full:
            most = 2 * bytes_max(talk.settings.shards)
            talk.shard._answered.count(talk.next_offset - 1, most)
        came = wrote = 0
        for request in requests:
            text = request if isinstance(request, bytes) else shortest(request)
            came += len(text)
            wrote += size_of(talk.send_raw(text, self.after_ms, self.topic))
        saved = size_of(talk.end_batch_raw())
        kept = max(before, len(talk.shard.encode()))
        return Judged(came, wrote, saved, kept, len(requests), -1)


def size_of(outputs: Iterable[Output]) -> int:
    """How many bytes they have."""
    return sum(len(each.key) + len(each.value or b"") for each in outputs)


def shortest(request: api.Request | api.Control) -> bytes:
    """The record without what it may leave out: fewer bytes lead to the same outputs."""
    tag = request.__struct_config__.tag
    return msgspec.json.encode({"type": tag, **_without_defaults(request)})


def _without_defaults(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        found = {each.encode_name: (getattr(value, each.name), each.default) for each in fields}
        return {
            name: _without_defaults(given)
            for name, (given, default) in found.items()
            if given is not msgspec.UNSET and given != default
        }
    return [_without_defaults(each) for each in value] if isinstance(value, tuple) else value


CASES: Final[list[Case]] = []
Made = tuple[Any, list[Any]]


def case(type_: str, what: str, **how: Any) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Keep a case."""

    def keep(make: Callable[[], Made]) -> Callable[[], Made]:
        CASES.append(Case(type_, what, make, **how))
        return make

    return keep


def types() -> list[str]:
    """Every type of the wire: requests, control records, messages of shards, messages of claims."""
    messages = (each for kind in REGISTRY.kinds.values() for each in kind.MESSAGES)
    found = [*get_args(api.AnyRequest), *dict.fromkeys(messages), *get_args(claims.AnyMessage)]
    inputs = [each.topic for each in REGISTRY.inputs.values() if each.letter != REQUESTS]
    beside = [f"{each}: OffsetCommit" for each in inputs]
    return [*(_name(each) for each in found if each is not api.FromShard), *beside]


def _name(each: type[Any]) -> str:
    if each in get_args(claims.AnyMessage):
        return f"claims: {each.__name__}"
    if issubclass(each, api.Message):
        return f"FromShard: {each.__name__}"
    return each.__name__


def words_of(number: int) -> dict[str, Any]:
    return {**WORDS, "id": str(number).rjust(limits.CORRELATION_ID_LENGTH_MAX, '"')}


def silence(talk: Conversation, seconds: int = 0) -> list[Any]:
    """For so long nothing is due; then comes the record at which something is."""
    talk.wait(seconds * 1_000)
    return [api.Tick(v=1, published=talk.shard.published)]
