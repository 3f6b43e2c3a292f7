"""A step in the making, and the *kind* of entity that decides it.

`step(state, event) -> (state, effects)` is pure at its edges: heads are frozen values. Inside one
step a `Step` holds the value as it stands by now and collects what should happen. When a step fails
half-way it is thrown away, and the entity is as it was before. Here is what all kinds have in
common; a kind may add its own in a class of its own.

`take` runs a step. It changes nothing: the shard writes the effects, and then stores what the
outcome has, every entry whose change was acknowledged, also where the head is the same as before.
# INV-22

An entity (a consumer group, for one) has a *head*: one frozen value, written whole when it changed.
Small rows beside it stand in tables (`tables.py`). A kind says which requests it judges, what the
shard must know of a value without decoding it (`Facts`), and what follows from a deadline. Kinds
that share names and state are a *family* (`protocol.py`). Every kind answers three requests: where
an entity lives, what it is, and its deletion.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from coordlib import limits
from coordlib.core.engine import effects as fx
from coordlib.core.engine.channels import Channels
from coordlib.core.engine.effects import At, BrokenInvariant
from coordlib.core.engine.tables import Change, Entries, Place, Table
from coordlib.core.engine.time import NEVER, Due
from coordlib.core.wire import api, stored
from coordlib.core.wire.envelope import Message, reply_partition_of, shard_of
from coordlib.errors import ErrorCode

#: For the sender of a request that would make one entity more than a shard may hold.
SHARD_IS_FULL: Final = (
    "Delete groups, or other entities, that nobody needs, or raise groups_per_shard_max: "
    "this shard is full."
)
#: For the sender of a request that would make the shard's state larger than it may be.
SHARD_IS_TOO_LARGE: Final = (
    "Delete groups, or other entities, that nobody needs, or raise shard.bytes_max: "
    "this shard's state is full."
)


def reply_of(request: api.Request, at: At) -> int:
    """The partition to answer in: the one named, or the client id's own."""
    if request.reply is not None:
        return request.reply
    return reply_partition_of(request.client, at.reply_partitions)


def answer(request: api.Request, at: At, reply: int | None = None, **fields: Any) -> fx.Respond:
    """The answer to a request; `reply`: another partition than the one it asks for."""
    response = api.answer_to(type(request))(
        id=request.id,
        client=request.client,
        group=request.group or "",  # an idempotent producer has no name
        cause=at.coordinate,
        **fields,
    )
    return fx.Respond(reply_of(request, at) if reply is None else reply, response)


def refusal(code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    """The fields `error` and `message` of an answer that refuses."""
    return {"error": code.name, "message": message or code.what_to_do}


def never_waits(_: int) -> bool:
    """Of what no request has asked for."""
    return False


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a step may read beside its value and its record."""

    #: Its row; None: there is no entity of that name.
    row: "RowView | None" = None
    #: The family's tables, by name.
    tables: "Mapping[str, Table]" = MappingProxyType({})
    #: Whether the shard has room for one more entity.
    may_create: bool = True
    #: How many bytes more the shard takes of new entities and members; below 0 it is fuller than it
    #: may be.
    room_bytes: int = limits.SHARD_BYTES_MAX
    #: Beyond those, kept for members: their groups go on when a flood has filled the rest.
    reserve_bytes: int = limits.SHARD_BYTES_MAX // limits.SHARD_RESERVE_SHARE
    #: Whether the request would be refused for now if it wrote so many bytes (`fx.UnreadOutputs`).
    must_wait: Callable[[int], bool] = never_waits
    #: What the family has beside its entities; see `Family.context`.
    family: Any = None
    #: Messages to and from other shards. Read only; None: there are no other shards.
    channels: "Callable[[], Channels] | None" = None


V = TypeVar("V")


class Step(Generic[V]):
    """One entity during one step."""

    __slots__ = (
        "at",
        "cause",
        "context",
        "effects",
        "entries",
        "family",
        "is_deleted",
        "is_reaction",
        "kind",
        "live",
        "may_create",
        "members_room_bytes",
        "must_wait",
        "name",
        "puts",
        "room_bytes",
        "sends",
        "touched",
        "value",
    )

    #: Errors for which the published design of the protocol has a name of its own.
    DESIGN_ERRORS: ClassVar[Mapping[ErrorCode, str]] = MappingProxyType({})

    def __init__(
        self, kind: "Kind", name: str, value: V | None, at: At, context: StepContext
    ) -> None:
        self.kind = kind
        self.name = name
        self.value = value
        #: The value where it exists by now. Elsewhere it is None: a step that goes on all the same
        #: breaks at its first field.
        self.live: V = value  # type: ignore[assignment]
        #: Whether this step deleted the entity; then `value` is None.
        self.is_deleted = False
        #: Whether the coordinator asked for just this, by a date. The sender's fence takes it for
        #: done when the log has it (rule 10), so it is never throttled (`effects.UnreadOutputs`).
        self.is_reaction = False
        self.at = at
        #: What history gives as the cause: the record's coordinate, or a deadline's name.
        self.cause = at.coordinate
        self.effects: list[fx.Effect] = []
        #: The entries that this step has put by now, by table and place.
        self.puts: dict[tuple[str, Place], Any] = {}
        #: The messages that this step has sent by now.
        self.sends: list[fx.ToShard] = []
        #: Members whose session starts anew with this step.
        self.touched: list[str] = []
        self.context = context
        #: What the family has beside its entities; see `Family.context`.
        self.family = context.family
        #: The entries of a table as they were before this step.
        self.entries: Callable[[Table], Entries]
        self.entries = Entries if context.row is None else context.row.entries
        #: Whether the shard has room for one more entity.
        self.may_create = context.may_create
        #: How many bytes more the shard takes of new entities and members.
        self.room_bytes = context.room_bytes
        #: The same, of members that it knows.
        self.members_room_bytes = context.room_bytes + context.reserve_bytes
        #: Whether a request that writes so many bytes is put off, before it has changed anything.
        self.must_wait = context.must_wait

    def hold(self, value: V | None) -> None:
        """Put this value in the place of the one before; None: there is no entity."""
        self.value = value
        self.live = value  # type: ignore[assignment]

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member's newest request was judged, on the shard's clock. Read only."""
        return {} if self.context.row is None else self.context.row.heard

    def change(self, **fields: Any) -> None:
        """Replace fields of the value; a kind says which ones have methods of their own."""
        self.hold(replace(self.live, **fields))  # type: ignore[type-var]  # values are structs

    def create(self, reason: str) -> None:
        """An entity without members and entries."""
        self.hold(self.kind.create(self.name, self.at))
        self.record(stored.EVENT_GROUP_CREATED, reason=reason)

    def delete(self) -> None:
        """The last that a step does to an entity: no request finds it any more."""
        self.hold(None)
        self.is_deleted = True

    # -- entries ---------------------------------------------------------------------------

    def entry(self, table: "Table", name: str, number: int) -> Any:
        """An entry as this step has left it by now, as the blob keeps it; None: there is none."""
        place = (table.name, (name, number))
        if place not in self.puts:
            return self.entries(table).get(name, number)
        value = self.puts[place]
        return None if value is None else table.keep(value)

    def put_entry(self, table: "Table", place: "Place", value: msgspec.Struct | None) -> None:
        """Store an entry if the step goes through; None: forget it."""
        key = table.key(self.name, place)
        self.puts[table.name, place] = value
        self.effects.append(fx.Put(table.topic, key, self.name, table.name, place, value))

    def forget_entries(self) -> None:
        """Forget all entries, of all tables that the family has; also those just put.

        What the step has forgotten already is not forgotten once more.
        """
        for each in self.context.tables.values():
            puts = {place: value for (name, place), value in self.puts.items() if name == each.name}
            places = {(name, number) for name, number, _ in self.entries(each)} - puts.keys()
            places |= {place for place, value in puts.items() if value is not None}
            for place in sorted(places):
                self.put_entry(each, place, None)

    # -- messages --------------------------------------------------------------------------

    @property
    def channels(self) -> "Channels":
        """The channels as they were before this step. Read only."""
        assert self.context.channels is not None, "a shard gives its steps the channels"
        return self.context.channels()

    def send(self, shard: int, message: Message) -> int:
        """Let a shard judge this, if the step goes through; the number of the message to it."""
        own = sum(each.shard == shard for each in self.sends)
        sent = fx.ToShard(shard, self.channels.sent_to(shard) + own + 1, message)
        self.sends.append(sent)
        self.effects.append(sent)
        return sent.number

    # -- effects ---------------------------------------------------------------------------

    def emit(self, effect: fx.Effect) -> None:
        """Let something happen, after all that was emitted before, if the step goes through."""
        self.effects.append(effect)

    def notify_removed(self, reply: int, member: str, reason: str) -> None:
        """Tell a member that it is none any more; `reply`: where it reads."""
        cause = self.at.coordinate
        notice = api.MemberRemoved(group=self.name, cause=cause, member=member, reason=reason)
        self.emit(fx.Notify(reply, notice))

    def answer(
        self,
        request: api.Request,
        reply: int | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record, now."""
        self.effects.append(answer(request, self.at, reply, **fields))

    def refuse(
        self,
        request: api.Request,
        code: ErrorCode,
        message: str | None = None,
        **fields: Any,
    ) -> None:
        """Answer the request of this record with an error; the value stays as it is.  # INV-24

        Where the published design has a name of its own for the error, the answer has that, too.
        """
        if code in self.DESIGN_ERRORS:
            fields.setdefault("design_error", self.DESIGN_ERRORS[code])
        self.effects.append(answer(request, self.at, **refusal(code, message), **fields))
        steps = request.UNREPORTED_REFUSALS
        if steps is not None and code not in steps:
            named = fields.get("member") or getattr(request, "member", None)
            self.record_refused(request, code, message, member=named or "")

    def record_refused(
        self,
        request: api.Request,
        code: ErrorCode,
        message: str | None = None,
        member: str = "",
        **detail: Any,
    ) -> None:
        """Record in the history which request was refused, and with which answer.

        One request, at most one such line: nobody can make history grow faster than the log.
        """
        answered = refusal(code, message)
        self.record(
            stored.EVENT_REQUEST_REJECTED,
            member=member,
            reason=answered["message"],
            detail={
                "error": answered["error"],
                "request": type(request).__name__,
                "client": request.client,
                **detail,
            },
        )

    def record(self, type_: str, **fields: Any) -> None:
        """A line of history about this entity."""
        generation = -1 if self.value is None else self.kind.generation(self.value)
        fields.setdefault("generation", generation)
        self.effects.append(
            fx.History(
                type=type_,
                space=self.kind.SPACE,
                group=self.name,
                cause=self.cause,
                kind=self.kind.NAME,
                **fields,
            )
        )


#: How long the sender of such a request should wait. When a tick covers enough is not known here;
#: a batch and its visibility take less.
THROTTLE_MS: Final = 1_000
#: For whoever has to wait.
TOO_MUCH_UNREAD: Final = (
    "Try again: the coordinator has said so much of late that readers must first see some of it."
)


def throttle_request(request: api.Request, step: Step[Any]) -> None:
    """The step of a request that has to wait."""
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    step.refuse(request, code, TOO_MUCH_UNREAD, throttle_time_ms=THROTTLE_MS)
    if isinstance(request, api.OffsetCommit | api.PendingCommit):
        step.record(
            stored.EVENT_COMMIT_REFUSED,
            member=request.member,
            reason=code.name,
            detail={
                "client": request.client,
                "request": type(request).__name__,
                "request_generation": request.generation,
            },
        )


#: Takes the step, and the request where one is judged.
Decide = Callable[..., None]


class Current(NamedTuple):
    """What the shard has of an entity before a step; nothing: it is not there."""

    value: Any = None
    kind: "Kind | None" = None
    #: The kind that history names if there is no entity, and none is made.
    named: str | None = None


class Outcome(NamedTuple):
    """What a step came to, if it went through."""

    #: The value after the step; None: there is none.
    value: Any
    #: The kind of that value; None: there is none.
    kind: "Kind | None"
    effects: list[fx.Effect]
    #: Of the effects, the entries to store or to forget.
    puts: list[fx.Put]
    #: Of the effects, the messages to shards.
    sends: list[fx.ToShard]
    #: Members whose session starts anew.
    touched: list[str]
    is_deleted: bool
    #: Whether there is anything to store.
    is_change: bool
    #: Whether a member did what it was asked for: that never waits for readers.
    is_reaction: bool

    def is_judged_by(self, kind: "Kind") -> bool:
        """Whether there is a value of this kind now that must be sound.

        One that is set aside need not be: perhaps that is why it is.
        """
        return self.value is not None and self.kind is kind and not self.value.is_quarantined


def take(
    decide: Decide,
    given: tuple[Any, ...],
    kind: "Kind",
    name: str,
    held: Current,
    at: At,
    context: StepContext,
) -> Outcome:
    """Let a kind judge for an entity, or for none."""
    value = held.value
    before = value if held.kind in (None, kind) else kind.adopt(value, at)
    step = kind.STEP(kind, name, before, at, context)
    decide(step, *given)
    # An empty entity of another kind that was judged and did not change keeps its kind.
    after = value if step.value is before else step.value
    found = kind if after is not None and after is not value else held.kind
    recorded_as = found.NAME if found else held.named
    if step.is_deleted and step.value is not None:
        raise BrokenInvariant(f"{name}: it was deleted and made anew in one step")
    puts = _puts(step)
    return Outcome(
        value=after,
        kind=found,
        effects=step.effects if recorded_as == kind.NAME else _named(step.effects, recorded_as),
        puts=puts,
        sends=step.sends,
        touched=step.touched,
        is_deleted=step.is_deleted,
        is_change=after is not value or bool(step.touched or puts),
        is_reaction=step.is_reaction,
    )


def _named(effects: list[fx.Effect], kind: str | None) -> list[fx.Effect]:
    """The effects of a step, with another kind in its history than the one that judged.

    A kind may judge for no entity, or for an empty one of another kind, and change nothing.
    """
    return [
        replace(effect, kind=kind) if isinstance(effect, fx.History) else effect
        for effect in effects
    ]


def _puts(step: Step[Any]) -> list[fx.Put]:
    """The entries of a step. Raises BrokenInvariant when no entity would keep them.  # INV-44"""
    found = [effect for effect in step.effects if isinstance(effect, fx.Put)]
    if not found:
        return found
    if step.value is None and not step.is_deleted:
        raise BrokenInvariant(f"{step.name}: entries were put for no entity")
    if any(effect.entity != step.name for effect in found):
        raise BrokenInvariant(f"{step.name}: entries of another entity were put")
    return found


def find_coordinator(step: Any, request: api.FindCoordinator) -> None:
    """FindCoordinator: the shard to which the name belongs, whether or not it is used.

    Any shard answers, as any Kafka broker does: otherwise the sender would have to know already.
    """
    step.answer(request, shard=shard_of(step.name, step.at.shards))


def describe_entity(step: Any, request: api.DescribeGroup) -> None:
    """DescribeGroup of a kind that has no members."""
    exists = step.value is not None
    state = getattr(step.value, "state", "Stable") if exists else "Dead"
    step.answer(
        request,
        kind=step.kind.NAME,
        state=str(state),
        generation=step.kind.generation(step.value) if exists else -1,
        protocol_type=None,
        protocol=None,
        leader=None,
        members=(),
        waits_for=(),
    )


def delete_entity(step: Any, request: api.DeleteGroup) -> None:
    """DeleteGroup: an empty entity goes, with the entries of its tables."""
    if step.value is None:
        step.refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not step.kind.is_empty(step.value):
        step.refuse(request, ErrorCode.NON_EMPTY_GROUP, step.kind.WHILE_NOT_EMPTY)
    else:
        remove_entity(step, "deleted", {"client": request.client})
        step.answer(request)


def remove_entity(step: Any, reason: str, detail: dict[str, str] | None = None) -> None:
    """Delete an entity without members, with its entries in all tables of the family.

    One of this name may be created again. The generations of a group begin anew then; a late
    request of an old generation names no member of the new group. Fencing tokens are offsets of the
    log and go on rising.
    # INV-27: so no late request brings back what was deleted. A position of a client that is no
    member may: it is judged after the requests of its batch, whenever it was written.
    """
    step.forget_entries()
    step.record(stored.EVENT_GROUP_DELETED, reason=reason, detail=detail or {})
    step.delete()


APIS_OF_ALL: Final[dict[type[api.Request], Any]] = {
    api.FindCoordinator: find_coordinator,
    api.DescribeGroup: describe_entity,
    api.DeleteGroup: delete_entity,
}


#: One step of an entity: it changes the step's value, or refuses.
Handler = Callable[[Any, Any], None]

#: No heartbeat is accepted without judging it.
NO_GENERATION: Final = -1
#: A live member's heartbeats are, whatever generation they name (rule 13).
ANY_GENERATION: Final = -2
#: nil: what a family may want to index is not known.
NOT_INDEXED: Final = msgspec.Raw(b"\xc0")


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the shard knows of a value without decoding it. Kept in the row; see `Kind.facts`."""

    #: Generation whose heartbeats change nothing but when a member was heard; or NO_ or ANY_.
    fast_path_generation: int = NO_GENERATION
    #: Not later than the earliest deadline, on the shard's clock.
    next_due_ms: int = NEVER
    #: Lowest and highest record whose answers somebody must be able to read first; -1: none.
    first_unread_offset: int = -1
    last_unread_offset: int = -1
    #: Shortest timeout of anybody who is waited for; 0: nobody (rule 1).
    timeout_ms: int = 0
    #: Partitions of the answers that members read.
    replies: tuple[int, ...] = ()
    #: Not later than the first time at which `Kind.maintain` may find something to do.
    next_maintenance_ms: int = NEVER
    #: Upper bound of the row in the shard's blob, without its tables; by the value alone.
    size_bytes: int = 0
    #: Instance id of each static member to its member id.
    instances: dict[str, str] = {}
    #: What the family finds entities by, opaque to the shard.
    index: msgspec.Raw = NOT_INDEXED
    #: Requests whose transactions of Kafka the driver has to ask about, by offset; nil: none.
    report: msgspec.Raw = NOT_INDEXED

    def at_rest(self) -> "Facts":
        """Of an entity that is set aside: nothing is due, and nobody is waited for."""
        return msgspec.structs.replace(
            self,
            fast_path_generation=NO_GENERATION,
            next_due_ms=NEVER,
            first_unread_offset=-1,
            last_unread_offset=-1,
            timeout_ms=0,
            next_maintenance_ms=NEVER,
        )


class RowView(Protocol):
    """As much of a row as a kind may read for its facts."""

    @property
    def heard(self) -> Mapping[str, int]:
        """When each member was last heard, on the shard's clock."""

    def count(self, table: "Table") -> int:
        """How many entries a table has; reads none of them."""

    def entries(self, table: "Table") -> "Entries":
        """The entries of a table."""


class Known(NamedTuple):
    """What a kind may use for new facts beside the value."""

    row: RowView
    #: The family's (`Family.SETTINGS`).
    settings: Any
    clock_ms: int
    #: The value and the facts before. Equal to the value of now: only its tables changed.
    value: Any
    facts: Facts
    #: How many entries each table had before, if it had any, by the table's name.
    counts: Mapping[str, int]
    #: The entries that were put or forgotten, by table, and what they were before.
    put: "Mapping[str, Sequence[Change]]" = MappingProxyType({})
    #: Whether `Kind.maintain` has just been called.
    has_looked: bool = False


class UnknownSavedVersion(ValueError):
    """A value was saved by other code; nothing else can read it."""


class Kind:
    """A kind of entity; one object, which keeps no state. The defaults are those of a kind
    without members, deadlines or tables.

    Values are frozen structs of the kind's own type, with the fields `v`, `group` and
    `is_quarantined`, and tagged with the kind's name (`tag_field="kind"`).
    """

    #: What rows of the shard, saved values and history call it.
    NAME: ClassVar[str]
    #: The space of its names; one for all kinds of a family.
    SPACE: ClassVar[str] = "group"
    #: Type of its values.
    VALUE: ClassVar[type[msgspec.Struct]]
    #: Version of its saved values, in their field `v`.
    SAVED_VERSION: ClassVar[int] = 1
    STEP: ClassVar[type[Step[Any]]] = Step
    #: The requests that it judges, beside those that every kind answers (`APIS_OF_ALL`).
    APIS: ClassVar[Mapping[type[api.Request], Handler]]
    #: The messages of shards that it judges (`channels.py`). A message is judged also while its
    #: entity is set aside, since it does not come again: its handler must see to that itself, and
    #: change no more then than entries of tables.
    MESSAGES: ClassVar[Mapping[type[Message], Handler]] = {}
    #: Its tables. They are the family's: an entity keeps them when its kind changes.
    TABLES: ClassVar["tuple[Table, ...]"] = ()
    #: What must happen before one of its entities can be deleted; None: as the error says.
    WHILE_NOT_EMPTY: ClassVar[str | None] = None

    @cached_property
    def handlers(self) -> Mapping[type[api.Request], Handler]:
        """All requests that it judges."""
        return {**APIS_OF_ALL, **self.APIS}

    # -- bytes -----------------------------------------------------------------------------

    @cached_property
    def decode(self) -> Callable[[bytes | memoryview], Any]:
        """From the shard's blob."""
        return msgspec.msgpack.Decoder(self.VALUE).decode

    @cached_property
    def encode(self) -> Callable[[Any], bytes]:
        """To the shard's blob; equal values, equal bytes."""
        return msgspec.msgpack.Encoder().encode

    @cached_property
    def _decode_saved(self) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(self.VALUE).decode

    def load(self, saved: bytes) -> Any:
        """From the compacted topic. Raises UnknownSavedVersion, msgspec.MsgspecError.

        A decoder ignores fields that it does not know: the fields of newer code would be lost.
        """
        value = self._decode_saved(saved)
        if value.v != self.SAVED_VERSION:
            raise UnknownSavedVersion(
                f"{self.name_of(value)} was saved with version {value.v}, this code knows "
                f"{self.SAVED_VERSION}: start the code that wrote it."
            )
        return value

    @cached_property
    def save(self) -> Callable[[Any], bytes]:
        """To the compacted topic."""
        return msgspec.json.Encoder().encode

    # -- values ----------------------------------------------------------------------------

    def create(self, name: str, at: At) -> Any:
        """The value of an entity that has just been made."""
        raise NotImplementedError(f"{self.NAME}: no step makes {name}, {at.coordinate}")

    @property
    def adopts(self) -> bool:
        """Whether an empty entity of another kind of the family may become one of this."""
        return type(self).adopt is not Kind.adopt

    def adopt(self, value: Any, at: At) -> Any:
        """An empty entity of another kind of the family as one of this kind."""
        raise NotImplementedError(f"{self.NAME} takes nothing over: {value}, {at.coordinate}")

    def is_empty(self, value: Any) -> bool:
        """Whether another kind of the family may take the entity over, and it may be deleted."""
        return not self.sessions(value)

    def name_of(self, value: Any) -> str:
        """How messages name an entity."""
        return f"{self.NAME} {getattr(value, 'group', '')}".strip()

    def generation(self, value: Any) -> int:
        """What lines of history give as the generation; -1: it has none."""
        return getattr(value, "generation", -1)

    def sessions(self, _: Any) -> Set[str]:
        """The member ids whose heartbeats count. Soft state has exactly these."""
        return frozenset()

    def facts(self, value: Any, known: Known) -> Facts:
        """What the shard must know of a value. Asked for when it, or its tables, have changed.

        An entry that is put must not cost what grows with the head: where `known.value` is the
        value itself, start from `known.facts`.
        """
        raise NotImplementedError(f"{self.NAME}: {value}, {known.facts}")

    def next_due(self, _value: Any, _heard: Mapping[str, int]) -> Due:
        """Its earliest deadline. `Facts.next_due_ms` may be earlier, since members were heard."""
        return Due(NEVER)

    def fire(self, step: Any, due: Due) -> None:
        """Do what follows from a deadline; all others that are due may be done with it.

        Sets `step.cause` to `due.name`, which history gives as the cause.
        """
        raise NotImplementedError(f"{self.NAME}: {due.name} of {step.name}")

    def outputs_visible(self, value: Any, _published: int, _clock_ms: int) -> tuple[Any, list[str]]:
        """Start what waited for answers to be visible; and the members heard of by that."""
        return value, []

    def restart(self, value: Any, _clock_ms: int) -> Any:
        """Give everything that runs its full time again."""
        return value

    def maintain(self, _step: Any, checked_ms: int) -> None:
        """Do what was due at a check: retention, expiry of ids. No tick is written for it."""

    def released(self, step: Any) -> None:
        """An operator lets the entity go on: catch up with what the family has learnt."""

    def invariants(self, _value: Any) -> Iterable[tuple[str, bool]]:
        """What always holds of a value, as sentences, and whether it does."""
        return ()

    def check(self, value: Any) -> None:
        """Raise BrokenInvariant when the value contradicts itself. On in every test."""
        for sentence, holds in self.invariants(value):
            if not holds:
                raise BrokenInvariant(f"{value.group}: {sentence}")
