"""Messages from shard to shard: in order, each applied once, through the log alone.  # INV-95

What is moved here are the coins of purses, in two shards: no protocol that the job has. The driver
is played by the tests, which read the outbox as it does, and feed it late, twice, or not at all.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.core.engine.effects import OUTBOX, REQUESTS, At, Output
from coordlib.core.engine.fold import Shard
from coordlib.core.engine.protocol import Family, Registry
from coordlib.core.engine.rows import Row
from coordlib.core.engine.state import InputRecord, ShardSettings, decode_blob, restore, topics_of
from coordlib.core.engine.step import Decide, Facts, Kind, Known, Step
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import Message, shard_of
from coordlib.errors import ErrorCode
from tests.tools import core

SHARDS = 2
#: Purses, by the shard that they are in.
HERE, THERE = (next(n for n in map(str, range(9)) if shard_of(n, SHARDS) == s) for s in (0, 1))


class Pay(api.Request, tag="Pay", frozen=True, kw_only=True):
    """Give coins to another purse."""

    SPACE: ClassVar[str] = "purse"
    to: str
    coins: int = 1


class PayResponse(api.Response, tag="Pay", frozen=True):
    pass


class Paid(Message, tag="Paid", frozen=True, kw_only=True):
    SPACE: ClassVar[str] = "purse"
    coins: int


class Purse(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="purse"):
    v: int = 1
    group: str
    coins: int = 0
    #: Coins that came while it was set aside would be lost if nobody kept them.
    waits: dict[int, int] = {}
    is_quarantined: bool = False


def pay(step: Step[Purse], request: Pay) -> None:
    if step.value is None:
        step.create("first payment")
    home = shard_of(request.to, step.at.shards)
    number = step.send(home, Paid(group=request.to, coins=request.coins))
    if request.client == "broken":
        raise ZeroDivisionError("pay")
    step.change(coins=step.live.coins - request.coins, waits={**step.live.waits, home: number})
    step.answer(request)


def paid(step: Step[Purse], message: Paid) -> None:
    if step.value is None:
        step.create("first coins")
    if step.live.is_quarantined:
        step.record("CoinsNoted", detail={"coins": message.coins})
        return
    if message.coins == 13:
        raise ZeroDivisionError("paid")
    step.change(coins=step.live.coins + message.coins)


class Purses(Kind):
    NAME, SPACE, VALUE = "purse", "purse", Purse
    APIS: ClassVar[dict[Any, Any]] = {Pay: pay}
    MESSAGES: ClassVar[dict[Any, Any]] = {Paid: paid}

    def create(self, name: str, at: At) -> Purse:
        return Purse(group=name)

    def facts(self, value: Purse, known: Known) -> Facts:
        return Facts(size_bytes=128)

    def released(self, step: Step[Purse]) -> None:
        for shard, number in step.live.waits.items():
            if number <= step.channels.heard_by(shard):
                arrived(shard, number, step)


class PurseFamily(Family):
    SPACE, HEADS, KINDS = "purse", "purses", (Purses(),)

    def heard(
        self, shard: int, number: int, rows: Iterable[tuple[str, Row]]
    ) -> list[tuple[str, Decide]]:
        waiting = ((name, row.value.waits.get(shard, 0)) for name, row in rows)
        return [
            (name, lambda step: arrived(shard, number, step))
            for name, wanted in sorted(waiting)
            if 0 < wanted <= number
        ]


def arrived(shard: int, number: int, step: Step[Purse]) -> None:
    step.record("CoinsArrived", detail={"shard": shard, "number": number})
    step.change(waits={to: n for to, n in step.live.waits.items() if to != shard})


REGISTRY = Registry(PurseFamily)


class City:
    """Two shards and their logs; messages move only when a test feeds them."""

    def __init__(self) -> None:
        self.shards = [Shard(None, settings(number), REGISTRY) for number in range(SHARDS)]
        self.next = [0] * SHARDS
        self.log: list[list[InputRecord]] = [[] for _ in range(SHARDS)]
        #: Everything that was written.
        self.outputs: list[Output] = []

    def send(self, shard: int, record: api.Request | api.Control | bytes) -> list[Output]:
        value = record if isinstance(record, bytes) else codec.encode(record)
        entry = InputRecord(REQUESTS, self.next[shard], 1_000 + self.next[shard], value)
        self.next[shard] += 1
        self.log[shard].append(entry)
        judge = self.shards[shard]
        before = len(judge.outputs)
        judge.judge(entry)
        self.outputs += judge.outputs[before:]
        return judge.outputs[before:]

    def pay(self, payer: str, to: str, coins: int = 1, client: str = "c") -> list[Output]:
        request = Pay(v=1, id="x", client=client, group=payer, to=to, coins=coins)
        return self.send(shard_of(payer, SHARDS), request)

    def outbox(self, sender: int, to: int) -> dict[int, bytes]:
        """The messages that wait, by number."""
        found: dict[int, bytes] = {}
        for each in self.outputs:
            key = msgspec.json.decode(each.key) if each.topic == OUTBOX else []
            if key[:2] == [sender, to]:
                found.pop(key[2], None)
                if each.value is not None:
                    found[key[2]] = each.value
        return found

    def feed(self, sender: int, to: int, *numbers: int) -> list[Output]:
        """What a driver writes that finds these messages in the outbox."""
        said: list[Output] = []
        for number in numbers:
            body = msgspec.Raw(self.outbox(sender, to)[number])
            said += self.send(to, api.FromShard(v=1, source=sender, seq=number, body=body))
        return said

    def tick(self, sender: int, heard: dict[int, int]) -> list[Output]:
        return self.send(sender, api.Tick(v=1, published=-1, heard=heard))

    def end_batch(self) -> None:
        for number, shard in enumerate(self.shards):
            before = len(shard.outputs)
            shard.close()
            self.outputs += shard.outputs[before:]
            self.shards[number] = Shard(shard.encode(), settings(number), REGISTRY)

    def coins(self) -> dict[str, int]:
        rows = {key[1]: row for shard in self.shards for key, row in shard.rows.items()}
        return {name: row.value.coins for name, row in rows.items()}

    def topics(self, shard: int) -> dict[str, dict[bytes, bytes]]:
        """The shard's partition of each compacted topic, after compaction."""
        mine = (each for each in self.outputs if each.partition == shard)
        return core.compacted(mine, topics_of(REGISTRY))


def settings(shard: int) -> ShardSettings:
    return ShardSettings(
        shard=shard, shards=SHARDS, reply_partitions=1, incarnation="t", checks_invariants=True
    )


def events(outputs: Iterable[Output]) -> list[str]:
    return [msgspec.json.decode(each.value)["type"] for each in outputs if each.topic == "events"]


def test_a_message_is_written_with_the_step_that_sent_it() -> None:
    """Answer, state and message stand in one transaction: nobody acts on another run's message."""
    city = City()

    said = city.pay(HERE, THERE, 2)

    assert [each.topic for each in said] == ["events", OUTBOX, "responses"]
    assert said[1] == Output(
        OUTBOX, 0, b"[0,1,1]", b'{"type":"Paid","group":"%s","coins":2}' % (THERE.encode())
    )
    assert city.coins() == {HERE: -2}


def test_each_message_is_judged_once_and_in_order() -> None:
    """The feeder wrote, died before it knew, and its successor feeds all again."""
    city = City()
    for coins in (1, 10, 100):
        city.pay(HERE, THERE, coins)

    city.feed(0, 1, 1, 2)
    assert city.coins()[THERE] == 11
    assert city.feed(0, 1, 1, 2) == []
    city.feed(0, 1, 3)

    assert city.coins()[THERE] == 111
    assert city.shards[1].status().heard == {0: 3}


def test_a_message_behind_a_gap_is_not_judged_and_leaves_no_line() -> None:
    """A shard drops messages while it has said too much, and a log may fail to take one. The driver
    feeds all again; a line for each message behind it would say that something is wrong."""
    city = City()
    for _ in range(3):
        city.pay(HERE, THERE)

    city.feed(0, 1, 1)
    assert city.feed(0, 1, 3) == []

    assert city.coins()[THERE] == 1
    city.feed(0, 1, 2, 3)
    assert city.coins()[THERE] == 3


def test_a_step_that_breaks_sends_nothing() -> None:
    """Its number goes to the next message, or the channel would stand still for ever."""
    city = City()
    city.pay(HERE, THERE)
    other = next(n for n in map(str, range(20, 40)) if shard_of(n, SHARDS) == 0)
    city.pay(other, THERE, client="broken")
    city.pay(HERE, THERE)

    assert sorted(city.outbox(0, 1)) == [1, 2]


def test_a_tick_withdraws_what_was_judged_and_wakes_who_waited() -> None:
    """Two drivers may tell it, the older one later; the newest number counts."""
    city = City()
    for _ in range(3):
        city.pay(HERE, THERE)
    city.feed(0, 1, 1, 2, 3)

    said = city.tick(0, {1: 2})
    assert [(each.key, each.value) for each in said] == [(b"[0,1,1]", None), (b"[0,1,2]", None)]
    assert events(said) == []
    assert events(city.tick(0, {1: 3})) == ["CoinsArrived"]
    assert city.outbox(0, 1) == {}
    # An older driver says less, later; another one says more than there is.
    assert city.tick(0, {1: 1}) == []
    assert city.tick(0, {1: 9}) == []


def test_to_ones_own_shard_a_message_goes_the_same_way() -> None:
    """A step changes its own entity only.  # INV-44"""
    city = City()
    near = next(n for n in map(str, range(20, 40)) if shard_of(n, SHARDS) == 0)
    city.pay(HERE, near, 5)

    assert near not in city.coins()
    city.feed(0, 0, 1)
    assert city.coins()[near] == 5


def test_a_message_for_an_entity_that_is_set_aside_is_judged_too() -> None:
    """It does not come again: its handler notes what it can, and the channel goes on."""
    city = City()
    city.pay(HERE, THERE, 1)
    city.pay(HERE, THERE, 13)
    city.pay(HERE, THERE, 2)

    assert events(city.feed(0, 1, 1, 2)) == [
        "GroupCreated",
        "GroupQuarantined",
        "CoinsNoted",
    ]
    assert events(city.feed(0, 1, 3)) == ["CoinsNoted"]
    assert city.coins()[THERE] == 1
    assert city.shards[1].status().heard == {0: 3}


def test_an_entity_that_is_released_catches_up() -> None:
    """The tick that would have woken it came while it was set aside."""
    city = City()
    city.pay(HERE, THERE)
    city.pay(THERE, HERE, 13)
    city.feed(0, 1, 1)
    city.feed(1, 0, 1)  # breaks HERE
    assert events(city.tick(0, {1: 1})) == []

    release = api.ReleaseQuarantine(v=1, id="q", client="ops", group=HERE, space="purse")
    assert events(city.send(0, release)) == ["GroupReleased", "CoinsArrived"]


@pytest.mark.parametrize(
    "body", [b'{"type":"Unknown","group":"1"}', b'{"type":"Paid"}', b'{"type":"Paid","group":"1"}']
)
def test_a_message_of_newer_code_waits_for_it(body: bytes) -> None:
    """To drop a decision would be worse than to wait: those behind it wait as well."""
    city = City()
    city.pay(HERE, THERE)
    city.pay(HERE, THERE)

    said = city.send(1, api.FromShard(v=1, source=0, seq=1, body=msgspec.Raw(body)))

    assert events(said) == ["RequestRejected"]
    assert city.shards[1].status().heard == {}
    city.feed(0, 1, 1, 2)
    assert city.coins()[THERE] == 2


def test_a_message_for_a_space_that_nothing_judges_is_over() -> None:
    """Registries differ only by code; the next message must not wait for this one."""
    city = City()

    class Stray(Message, tag="Paid", frozen=True, kw_only=True):
        SPACE: ClassVar[str] = "nowhere"
        coins: int

    shard = city.shards[1]
    shard.registry = Registry(PurseFamily)
    shard.registry.__dict__["read_message"] = msgspec.json.Decoder(Stray).decode
    said = city.send(
        1,
        api.FromShard(
            v=1, source=0, seq=1, body=msgspec.Raw(b'{"group":"x","coins":1,"type":"Paid"}')
        ),
    )

    assert events(said) == ["RequestRejected"]
    assert shard.status().heard == {0: 1}


def test_a_shard_without_channels_keeps_its_bytes() -> None:
    """Who does not use them pays nothing, and older code still reads the state."""
    city = City()
    city.send(0, api.Tick(v=1, published=-1))

    assert len(msgspec.msgpack.decode(city.shards[0].encode())) == 10
    city.pay(HERE, THERE)
    assert len(msgspec.msgpack.decode(city.shards[0].encode())) == 11


def test_a_refused_request_is_what_a_client_gets_that_feeds_a_shard() -> None:
    """A client may write FromShard where records are not signed; it is answered to nobody, and a
    wrong one changes nothing."""
    city = City()
    for value in (
        b'{"v":1,"type":"FromShard"}',
        b'{"v":1,"type":"FromShard","from":-1,"seq":1,"body":{}}',
    ):
        assert events(city.send(1, value)) == ["RequestRejected"]
    assert city.shards[1].status().heard == {}


# -- any course, any cut, any restart -----------------------------------------------------------

COURSES = st.lists(
    st.one_of(
        st.tuples(st.just("pay"), st.sampled_from([(HERE, THERE), (THERE, HERE), (HERE, HERE)])),
        st.tuples(st.just("feed"), st.tuples(st.integers(0, 1), st.integers(0, 1))),
        st.tuples(st.just("again"), st.tuples(st.integers(0, 1), st.integers(0, 1))),
        st.tuples(st.just("tick"), st.integers(0, 1)),
        st.tuples(st.just("cut"), st.none()),
    ),
    max_size=40,
)


def play(course: list[tuple[str, Any]]) -> City:
    city = City()
    for what, how in course:
        if what == "pay":
            city.pay(*how)
        elif what == "feed":
            heard = city.shards[how[1]].channels.heard.get(how[0], 0)
            city.feed(*how, *[n for n in sorted(city.outbox(*how)) if n > heard][:2])
        elif what == "again":
            city.feed(*how, *sorted(city.outbox(*how))[:2])
        elif what == "tick":
            by = {to: city.shards[to].channels.heard.get(how, 0) for to in range(SHARDS)}
            city.tick(how, {to: number for to, number in by.items() if number})
        else:
            city.end_batch()
    return city


@given(COURSES)
def test_any_course_loses_and_repeats_nothing(course: list[tuple[str, Any]]) -> None:
    """Every coin that was paid is in a purse or in the outbox.  # INV-95"""
    city = play(course)
    on_the_way = sum(
        msgspec.json.decode(body)["coins"]
        for sender in range(SHARDS)
        for to in range(SHARDS)
        for number, body in city.outbox(sender, to).items()
        if number > city.shards[to].channels.heard.get(sender, 0)
    )

    assert sum(city.coins().values()) + on_the_way == 0


@given(COURSES)
def test_any_cut_writes_the_same(course: list[tuple[str, Any]]) -> None:
    """INV-02: what is written once a batch is the state alone."""
    whole = play([each for each in course if each[0] != "cut"])
    cut = play(course)
    for city in (whole, cut):
        city.end_batch()

    assert [s.encode() for s in cut.shards] == [s.encode() for s in whole.shards]
    assert [each for each in cut.outputs if not _is_of_batch(each)] == [
        each for each in whole.outputs if not _is_of_batch(each)
    ]
    for shard in range(SHARDS):
        assert cut.topics(shard) == whole.topics(shard)


def _is_of_batch(output: Output) -> bool:
    return output.topic == "purses" or output.key[:2] == b'["'


@given(COURSES)
def test_a_rebuild_has_the_same_channels(course: list[tuple[str, Any]]) -> None:
    """INV-38: the numbers go on, or every later message would be a gap, or an old one."""
    city = play(course)
    city.end_batch()
    for shard in range(SHARDS):
        position = city.shards[shard].status().position
        again = decode_blob(restore(city.topics(shard), position, REGISTRY), REGISTRY)
        was = decode_blob(city.shards[shard].encode(), REGISTRY)

        assert again.channels == was.channels
        assert [row.head for row in again.rows] == [row.head for row in was.rows]


def test_a_foreign_key_in_the_outbox_refuses_the_rebuild() -> None:
    """Another program wrote into the topic: numbers of channels must not be guessed."""
    position = City().shards[0].status().position
    for key in (b'["other",1]', b"[1]", b"x"):
        with pytest.raises(msgspec.MsgspecError):
            restore({OUTBOX: {key: b"{}"}}, position, REGISTRY)


def test_messages_are_no_requests() -> None:
    """A client that writes one is refused as for any type that nobody knows."""
    city = City()
    said = city.send(0, b'{"v":1,"type":"Paid","id":"x","client":"c","group":"1","coins":5}')

    (answer,) = (msgspec.json.decode(each.value) for each in said if each.topic == "responses")
    assert answer["error"] == ErrorCode.UNSUPPORTED_VERSION.name
