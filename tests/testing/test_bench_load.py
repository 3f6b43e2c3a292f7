"""The load generator against the pure core: its members are judged as real ones are."""

import subprocess
from collections import Counter

import psutil

from coordlib.core.engine.effects import REQUESTS
from coordlib.core.wire import api, codec
from coordlib.core.wire.stored import Marker, ShardPosition
from tests.tools.bench.core import SETTINGS
from tests.tools.bench.crowd import Crowd, Record
from tests.tools.bench.gauges import Costs, Pace, _read
from tests.tools.bench.load import is_sustained
from tests.tools.bench.probes import GROUPS, Probes
from tests.tools.core import InputRecord, ShardSettings, fold


class Job:
    """One shard that judges a batch at a time."""

    def __init__(self, settings: ShardSettings = SETTINGS) -> None:
        self._settings, self._blob = settings, None
        self._offset = 0

    def judge(self, records: list[Record]) -> list[api.AnyResponse]:
        """The answers to a batch, as a reader sees them."""
        batch = []
        for record in records:
            batch.append(InputRecord(REQUESTS, self._offset, 1_000_000, record.value))
            self._offset += 1
        outcome = fold(self._blob, batch, self._settings)
        self._blob = outcome.blob
        outputs = [each for each in outcome.outputs if each.topic == "responses" and each.key]
        return [codec.decode_response(each.value or b"") for each in outputs]


def settle(crowd: Crowd, job: Job) -> None:
    go_on(crowd, job, list(crowd.join_all()))


def go_on(crowd: Crowd, job: Job, written: list[Record]) -> None:
    """Batch by batch, until nobody has anything to write."""
    for _ in range(10):
        written = [each for answer in job.judge(written) for each in crowd.hear(answer)]
    assert not written


def test_the_crowd_settles_and_its_heartbeats_are_accepted() -> None:
    """Every group's first member is answered at once and has to rejoin when the others come."""
    crowd, job = Crowd(groups=5, members=4, shards=1, reply_partitions=4, token="x"), Job()
    settle(crowd, job)
    assert crowd.is_settled
    crowd.refused.clear()
    beats = [crowd.heartbeat(number) for number in range(2 * len(crowd))]
    answers = job.judge([beat for beat in beats if beat is not None])
    assert (len(beats), answers, crowd.refused) == (40, [], Counter())


def test_nobody_heartbeats_before_it_has_a_share() -> None:
    crowd = Crowd(groups=2, members=2, shards=1, reply_partitions=1, token="x")
    list(crowd.join_all())
    assert [crowd.heartbeat(number) for number in range(4)] == [None] * 4


def test_a_member_that_is_refused_joins_again_and_is_counted() -> None:
    """A load whose members silently fell out would look light to the job."""
    crowd, job = Crowd(groups=1, members=3, shards=1, reply_partitions=1, token="x"), Job()
    settle(crowd, job)
    beat = crowd.heartbeat(1)
    assert beat is not None
    request = codec.decode_request(beat.value)
    assert isinstance(request, api.Heartbeat)
    leave = api.LeaveGroup(
        v=1,
        id="l",
        client=request.client,
        group=request.group,
        members=(api.Leaver(request.member),),
    )
    answers = job.judge([Record(codec.encode(leave), b"", 0)])
    rejoining = [each for answer in answers for each in crowd.hear(answer)]
    assert len(rejoining) == 3
    assert crowd.settled == 0
    for answer in job.judge([beat]):
        crowd.hear(answer)
    assert crowd.refused == {"removed": 1, "UNKNOWN_MEMBER_ID": 1}
    go_on(crowd, job, rejoining)
    assert crowd.is_settled


def test_probes_are_timed_from_their_join_to_its_answer_and_leave() -> None:
    probes, job = Probes(shards=1, reply_partitions=4, token="x"), Job()
    joins = [probes.next(now_s=10.0 + n) for n in range(3)]
    leaves = [each for answer in job.judge(joins) for each in probes.hear(answer, now_s=20.0)]
    assert probes.took_s == [10.0, 9.0, 8.0]
    assert (len(leaves), probes.unanswered, probes.refused) == (3, 0, 0)
    left = [each for each in job.judge(leaves) if isinstance(each, api.LeaveGroupResponse)]
    assert [each.error for each in left] == ["NONE"] * 3


def test_probes_come_back_to_groups_that_are_empty_again() -> None:
    """State must not grow with the length of the measurement."""
    probes, job = Probes(shards=1, reply_partitions=1, token="x"), Job()
    for n in range(GROUPS + 5):
        answers = job.judge([probes.next(now_s=0.0)])
        job.judge([each for answer in answers for each in probes.hear(answer, now_s=n)])
    assert (len(probes.took_s), probes.unanswered) == (GROUPS + 5, 0)


def test_a_probe_under_way_when_a_measurement_begins_leaves_untimed() -> None:
    """Else the next probe of its group would wait for the end of its session, and be timed."""
    probes, job = Probes(shards=1, reply_partitions=1, token="x"), Job()
    answers = job.judge([probes.next(now_s=0.0)])
    probes.forget()

    leaves = [each for answer in answers for each in probes.hear(answer, now_s=5.0)]

    assert len(leaves) == 1
    assert (probes.took_s, probes.unanswered, probes.refused) == ([], 0, 0)


def test_an_unanswered_probe_is_seen() -> None:
    probes = Probes(shards=1, reply_partitions=1, token="x")
    probes.next(now_s=0.0)
    assert probes.unanswered == 1


def marker(batch: int, judged: int, previous_ms: int) -> Marker:
    position = ShardPosition(
        clock_ms=0, previous_ms=previous_ms, offsets={"r": judged - 1}, published=-1
    )
    return Marker(
        checkpoint="c",
        batch=batch,
        ranges={},
        digest="",
        next_offsets={"coord.requests": {"0": judged}},
        shards={"0": position},
    )


def test_pace_and_lag_are_read_from_the_markers() -> None:
    pace = Pace()
    for batch, written_s in enumerate((10.0, 10.25, 10.75)):
        pace.saw(
            marker(batch, 100 * batch, int(written_s * 1000) - 125), written_s, "coord.requests"
        )
    assert pace.batch_s == [0.25, 0.5]
    assert pace.lag_s == [0.125, 0.125, 0.125]
    assert pace.judged == 200


def test_lag_grows_when_the_job_falls_back() -> None:
    assert Pace(lag_s=[0.3, 0.4, 0.9, 1.5, 2.0, 2.6]).lag_grew()
    assert not Pace(lag_s=[0.3, 0.6, 0.4, 0.5, 0.3, 0.6]).lag_grew()
    assert Pace(lag_s=[0.3, 0.3]).lag_grew()  # two batches in all that time


def test_costs_leave_out_what_has_ended() -> None:
    """Spark ends idle Python workers whenever it likes: one did, and took the sweep with it."""
    with subprocess.Popen(["sleep", "60"]) as child:
        gone = psutil.Process(child.pid)
        child.kill()
    assert list(_read(lambda each: each.memory_info().rss, [gone])) == []
    costs = Costs(None)
    costs.begin()
    assert costs.figures()["memory_mib"]


def test_a_rate_is_sustained_only_if_everything_holds() -> None:
    good = {
        "target_per_s": 1000,
        "sent_per_s": 995,
        "lag_grew": False,
        "drained_s": 0.4,
        "unanswered": 0,
        "refused": {},
        "write_errors": {},
    }
    assert is_sustained(good)
    for bad in (
        {"sent_per_s": 900},  # then it was the generator that could not
        {"lag_grew": True},
        {"drained_s": None},
        {"drained_s": 9.0},
        {"unanswered": 1},
        {"refused": {"removed": 1}},
        {"write_errors": {"_MSG_TIMED_OUT": 1}},
    ):
        assert not is_sustained(good | bad)
