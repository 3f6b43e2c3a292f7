"""Whose control records a shard obeys: time-and-fencing.md, rule 17."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from coordlib import limits
from coordlib.core.engine.effects import COMMITTED, GROUPS, REQUESTS
from coordlib.core.engine.refusals import ControlRecords
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api, codec
from coordlib.testing.signing import Keyholder, verify
from tests.core.engine.test_stored_states import FOLDER
from tests.tools import driving, stored_state
from tests.tools.assigned_groups import owned_in, subscribe, topics
from tests.tools.core import (
    STATE_VERSION,
    InputRecord,
    Shard,
    ShardSettings,
    decode_blob,
    fold,
    restore,
)
from tests.tools.driving import START_MS, Conversation, join

#: As in production: nothing here may depend on checks of a group's soundness.
OPEN = msgspec.structs.replace(driving.SETTINGS, checks_invariants=False)
DRIVER = Keyholder()
SETTINGS = DRIVER.settings(OPEN)


class Job:
    """A shard, and the driver that writes to it."""

    def __init__(self, settings: ShardSettings = SETTINGS, driver: Keyholder = DRIVER) -> None:
        self.talk = Conversation(settings)
        self._driver, self._signer = driver, driver.signer(settings)

    def restart(self, start: int) -> None:
        self._signer = self._driver.signer(self.talk.settings, start)

    def value(self, record: api.Control) -> bytes:
        return self._signer.value(self.talk.settings.shard, record)

    def tell(self, record: api.Control) -> list[str]:
        return self.talk.send(self.value(record))

    def tick(self) -> list[str]:
        return self.tell(api.Tick(v=1, published=self.talk.next_offset - 1))

    def published(self) -> int:
        return self.talk.shard.published


def rejected(lines: list[str], reason: str) -> bool:
    """Whether there is one line of history, which says this, and nothing else."""
    return len(lines) == 1 and "RequestRejected" in lines[0] and reason in lines[0]


def state_of(shard: Shard) -> dict[str, Any]:
    """Everything that is kept, but for where the shard stands, its time and refusals counted."""
    state = decode_blob(shard.encode())
    rows = {name: getattr(state, name) for name in state.__struct_fields__}
    return {
        name: value
        for name, value in rows.items()
        if name not in ("clock_ms", "previous_ms", "offsets", "refusals")
    }


# -- what the driver writes ------------------------------------------------------------------


def test_what_the_driver_signs_is_obeyed() -> None:
    """A tick starts deadlines, a listing gives partitions to who has wished for them."""
    job = Job()
    job.talk.send(subscribe("a"))
    job.tell(topics({"t": 4}))
    job.tick()

    assert owned_in(job.talk) == {"a": {"t": (0, 1, 2, 3)}}
    assert job.published() == 1
    assert job.talk.shard.status().position.control == (1, 1)


def test_a_signed_tick_covers_nothing_that_comes_after_it() -> None:
    """A defect of the driver must not start deadlines of what is not written yet."""
    job = Job()
    job.tell(api.Tick(v=1, published=2**63 - 1))

    assert job.published() == -1


@pytest.mark.parametrize("start", [2, 9])
def test_a_driver_that_starts_anew_counts_from_zero(start: int) -> None:
    """It knows nothing of the numbers of the one before but that its own start is a later one."""
    job = Job()
    for _ in range(3):
        job.tick()
    job.restart(start)
    job.talk.send(join("a"))
    job.tick()

    assert job.published() == 3
    assert job.talk.shard.status().position.control == (start, 0)


# -- what others write -----------------------------------------------------------------------


def forged(record: api.Control) -> dict[str, bytes]:
    """What somebody can write who has no secret, and reads the log."""
    there = msgspec.structs.replace(SETTINGS, shard=1)
    elsewhere = msgspec.structs.replace(SETTINGS, incarnation="u")
    foreign, own = Keyholder("foreign").signer(SETTINGS, 7), DRIVER.signer(SETTINGS, 7)
    mine = own.value(0, record)
    return {
        "unsigned": codec.encode(record),
        "half signed": codec.encode(msgspec.structs.replace(record, n=(7, 0), key="key-1")),
        "of another key": foreign.value(0, record),
        "under the key's name": foreign.value(0, record).replace(b'"foreign"', b'"key-1"'),
        "of another shard": DRIVER.signer(there, 7).value(1, record),
        "of other topics": DRIVER.signer(elsewhere, 7).value(0, record),
        "changed": mine.replace(b'"n":[7,0]', b'"n":[7,1]'),
        "with another field": mine.replace(b'"v":1', b'"v": 1'),
        "without signature": codec.encode(
            msgspec.structs.replace(record, n=(7, 0), key="key-1", sig=b"")
        ),
    }


REASONS = {
    "unsigned": "it is not signed",
    "half signed": "it is not signed",
    "of another key": "its key is none of the job's",
}
WRONG = "its signature is not that of this record in this shard"
FORGED = {"tick": api.Tick(v=1, published=2**63 - 1), "listing": api.TopicMetadata(v=1, topics=())}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("how", forged(FORGED["tick"]))
def test_what_others_write_changes_nothing_and_is_told(what: str, how: str) -> None:
    """INV-69: one forged tick made two owners, one forged listing stopped every group of a shard.

    Whoever may join a group may write to the log that the driver writes to.
    """
    job = Job()
    job.tell(topics({"t": 4}))
    job.talk.send_all(subscribe("a"), join("b", group="h"))
    before = state_of(job.talk.shard)
    told = job.talk.send(forged(FORGED[what])[how], after_ms=100)

    assert rejected(told, REASONS.get(how, WRONG)), told
    assert "CLUSTER_AUTHORIZATION_FAILED" in told[0]
    assert state_of(job.talk.shard) == before
    assert job.talk.shard.clock_ms == START_MS + 100, "its time is the broker's"


def test_a_flood_of_forged_records_has_a_line_for_every_thousandth() -> None:
    """Somebody tries keys; history must not cost as much as what he writes."""
    job = Job()
    lines = [line for _ in range(2_000) for line in job.talk.send(codec.encode(FORGED["tick"]))]

    assert len(lines) == limits.REFUSALS_REPORTED_MAX + 2


def test_a_control_record_among_positions_is_misplaced() -> None:
    """Its place among the requests would depend on where batches end."""
    job = Job()
    value = job.value(api.Tick(v=1, published=0))

    assert rejected(job.talk.send(value, topic=COMMITS), "only OffsetCommit")
    assert job.talk.shard.status().position.control == (0, 0)


# -- what comes once more, or late -----------------------------------------------------------


@pytest.mark.parametrize("since", ["the record itself", "one more", "another start"])
def test_a_copied_record_does_nothing_and_has_no_line(since: str) -> None:
    """INV-69: a listing of yesterday, copied behind that of today, would take topics away. The
    driver itself writes twice what was not acknowledged, and an older one writes late: neither is
    anybody's fault."""
    job = Job()
    old = job.value(topics({"t": 4}))
    job.talk.send(old)
    if since == "one more":
        job.tell(topics({"t": 4, "u": 1}))
    elif since == "another start":
        job.restart(2)
        job.tell(topics({"u": 1}))
    before = state_of(job.talk.shard)

    assert job.talk.send(old) == []
    assert state_of(job.talk.shard) == before


@pytest.mark.parametrize(("newest", "counts"), [((1, 6), True), ((1, 7), False), ((2, 0), False)])
def test_a_record_counts_once(newest: tuple[int, int], counts: bool) -> None:
    """What counts twice does no harm today: a listing or a tick says the same again. A record of
    another type need not be like that."""
    signer = DRIVER.signer(SETTINGS)
    value = [signer.value(0, FORGED["listing"]) for _ in range(8)][7]
    request = codec.decode_request(value)
    assert isinstance(request, api.Control)
    judge = ControlRecords(newest, SETTINGS)

    judged = judge.judge(request, InputRecord(REQUESTS, 9, START_MS, value))

    assert judged == (request if counts else None)
    assert judge.newest == max(newest, (1, 7))


def test_numbers_that_are_left_out_were_lost_on_their_way() -> None:
    """What was not acknowledged is written again under another number."""
    job = Job()
    job.value(topics({"t": 4}))
    job.tell(topics({"t": 4}))

    assert job.talk.shard.status().position.control == (1, 1)
    assert job.talk.shard.topics == {"t": 4}


def test_each_shard_counts_by_itself() -> None:
    """A copy from another shard is none of this one's, however high its number is there."""
    signer = DRIVER.signer(SETTINGS)
    for shard in (0, 0, 0, 1):
        signer.value(shard, api.Tick(v=1, published=0))
    here, there = (codec.decode_request(signer.value(s, FORGED["tick"])) for s in (0, 1))

    assert isinstance(here, api.Tick)
    assert isinstance(there, api.Tick)
    assert (here.n, there.n) == ((1, 3), (1, 1))


# -- from when on ----------------------------------------------------------------------------


def test_before_a_key_was_made_nothing_had_to_be_signed() -> None:
    """A prefix of before goes over without a stop: its old ticks stand in the log, and a batch
    that was judged without the key is judged again with it."""
    job = Job(Keyholder(since={0: 2}).settings(OPEN))
    job.talk.send(join("a"))
    job.talk.tick()
    assert job.published() == 0

    told = job.talk.tick()

    assert rejected(told, "it is not signed")
    assert job.published() == 0
    job.tick()
    assert job.published() == 2


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_key_counts_from_its_own_beginning_only(is_turned: bool) -> None:
    """Whoever judged that batch before did not know the key; and a list in another order says
    the same."""
    old, new = Keyholder("old", {0: 1}), Keyholder("new", {0: 4})
    settings = new.settings(OPEN, old)
    if is_turned:
        settings = msgspec.structs.replace(settings, keys=settings.keys[::-1])
    talk, signers = Conversation(settings), [each.signer(settings) for each in (old, new)]
    told = [talk.send(join("a"))]
    for start, signer in ((1, signers[0]), (2, signers[1]), (3, signers[0]), (4, signers[1])):
        signer.start = start
        tick = api.Tick(v=1, published=talk.next_offset - 1)
        told.append(talk.send(signer.value(0, tick)))

    assert told[1] == []
    assert rejected(told[2], "its key is none of the job's")
    assert told[3:] == [[], []]
    assert talk.shard.published == 3


def test_a_shard_that_a_key_does_not_name_needs_signatures_from_its_beginning() -> None:
    """Where nobody says from when on, the safe answer is from the first record."""
    settings = msgspec.structs.replace(Keyholder(since={0: 5}).settings(OPEN), shard=1, shards=2)

    assert rejected(Conversation(settings).tick(), "it is not signed")


def records_of(job: Job) -> list[InputRecord]:
    """A log in which everything here happens, and two more drivers come."""
    for start in (1, 2, 3):
        job.restart(start)
        job.talk.send(subscribe(f"m{start}"))
        late = job.value(topics({"t": start}))
        job.tell(topics({"t": 4 * start}))
        for value in (late, *forged(FORGED["listing"]).values()):
            job.talk.send(value, after_ms=300)
        job.tick()
    return job.talk.log


def test_batches_are_judged_alike_with_keys_that_were_made_later() -> None:
    """INV-02: a batch was planned and judged, the job died, and the next start made a key; or the
    whole log is folded at once, with all keys there are. Any cut gives the same bytes."""
    log = records_of(Job())
    whole = fold(None, log, SETTINGS)
    for cut in range(1, len(log)):
        later = Keyholder("later", {0: cut}).settings(SETTINGS, DRIVER)
        first = fold(None, log[:cut], SETTINGS)
        again = fold(None, log[:cut], later)
        rest = fold(first.blob, log[cut:], later)

        assert (again.blob, again.outputs) == (first.blob, first.outputs)
        assert rest.blob == whole.blob
        assert rest.status == whole.status


# -- what is kept ----------------------------------------------------------------------------


def test_a_rebuilt_shard_knows_the_newest_number() -> None:
    """The checkpoint is lost, and somebody copies a listing that had been overtaken."""
    job = Job()
    old = job.value(topics({"t": 4}))
    job.talk.send(old)
    job.tell(topics({"t": 4, "u": 1}))
    job.talk.send_all(subscribe("a"), subscribe("b", topics=("u",)))
    job.talk.end_batch()
    written = {(o.topic, o.key): o.value for o in job.talk.outputs}
    saved = [value for (topic, _), value in written.items() if topic == GROUPS and value]
    committed = [(key, v) for (topic, key), v in written.items() if topic == COMMITTED and v]

    job.talk.load(restore(saved, committed, job.talk.shard.status().position))

    assert job.talk.send(old) == []
    assert job.talk.shard.topics == {"t": 4, "u": 1}


def test_a_shard_that_nobody_signed_for_has_obeyed_no_number() -> None:
    """Drivers begin to sign between two batches."""
    fixture = stored_state.read(stored_state.path_of(STATE_VERSION, FOLDER))
    settings = Keyholder(since={0: fixture.log[0][1]}).settings(stored_state.SETTINGS)
    shard = Shard(fixture.blob, settings)
    assert (decode_blob(fixture.blob).control, fixture.position.control) == ((0, 0), (0, 0))

    offset, time_ms = shard.offset + 1, shard.previous_ms
    tick = DRIVER.signer(settings).value(0, api.Tick(v=1, published=shard.offset))
    shard.judge(InputRecord(REQUESTS, offset, time_ms, tick))

    assert shard.published == offset - 1


def test_keys_without_a_verifier_are_refused() -> None:
    """A shard that believes nobody would let no deadline begin, and say nothing."""
    with pytest.raises(ValueError, match="nothing is given to verify"):
        msgspec.structs.replace(OPEN, keys=(DRIVER.key,))


def test_a_verifier_is_asked_for_whole_records_only() -> None:
    """It costs more than all the rest: not for what no key has signed."""
    asked: list[bytes] = []

    def counting(public: bytes, message: bytes, signature: bytes) -> bool:
        asked.append(message)
        return verify(public, message, signature)

    settings: ShardSettings = msgspec.structs.replace(SETTINGS, verify=counting)
    job = Job(settings)
    sends: list[Callable[[], Any]] = [
        job.tick,
        job.talk.tick,
        lambda: job.talk.send(forged(FORGED["tick"])["of another key"]),
        lambda: job.talk.send(join("a")),
        lambda: job.talk.send(driving.heartbeat("a", 1, "a-t-0-3")),
    ]
    for send in sends:
        send()

    assert len(asked) == 1
