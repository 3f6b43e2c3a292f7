"""The log of requests loses its end, as by an unclean election or with a disk that is put back."""

import json
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from coordlib import exit_codes
from coordlib.core.wire.envelope import shard_of
from coordlib.local.jars import ensure_jars
from coordlib.local.processes import belonging_to
from coordlib.local.progress import silent
from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.cut import cut_log
from tests.stack.wire import Wire

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]
GROUP = next(name for name in map(str, range(99)) if shard_of(name, 2) == 0)
PLACE = TopicPartition("coord.requests", 0)


def end_of(stack: Stack) -> int:
    """Where the log of requests of shard 0 ends."""
    consumer = Consumer({"bootstrap.servers": stack.bootstrap_servers, "group.id": "x"})
    try:
        found: list[int] = []

        def ask() -> bool:
            try:
                found.append(consumer.get_watermark_offsets(PLACE, timeout=10)[1])
            except KafkaException:
                return False
            return True

        wait_until("it has a leader", ask)
        return found[-1]
    finally:
        consumer.close()


def cut(stack: Stack, *topics: str) -> None:
    """Half of these logs of shard 0 goes, while the broker is down."""
    stack.broker.stop()
    for topic in topics or ("requests",):
        cut_log(stack.home / "broker" / "segments", f"coord.{topic}-0")
    stack.broker.jars = ensure_jars(silent).broker
    stack.broker.start()


def commit(wire: Wire, offset: int) -> str:
    row = {"topic": "t", "partition": 0, "offset": offset}
    return wire.send("OffsetCommit", GROUP, offsets=[row])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_regrown", [False, True])
def test_a_log_that_was_cut_while_the_job_was_away(
    own_stack: Stack, start_job: Callable[..., None], tmp_path: Path, is_regrown: bool
) -> None:
    """Shorter: no start went on, nor the way that it named. Regrown: what members had written at
    the old offsets was never judged, and nobody was told.  # INV-104"""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        for number in range(40):
            asked = commit(wire, number)
        wire.answer(asked)
    own_stack.stop_job()
    was = end_of(own_stack)
    cut(own_stack)
    assert end_of(own_stack) < was
    with Wire(own_stack.bootstrap_servers) as wire:
        commit(wire, 100)
        while is_regrown and end_of(own_stack) < was:
            commit(wire, 100)

        for more in ((), ("--rebuild",)):
            with pytest.raises(Exception, match="--rebuild --accept-loss"):
                start_job(*more)
            assert own_stack.job.exit_code == exit_codes.REFUSED
            own_stack.checkpoint.rename(tmp_path / f"was-{len(more)}")
        start_job("--rebuild", "--accept-loss")
        asked = commit(wire, 200)
        assert int(asked.rpartition("-")[2]) >= was, "no offset is judged twice"
        assert wire.answer(asked)["error"] == "NONE"
        wire.read_everything()
        judged = [each["offset"] for each in wire.values("committed") if each]
        assert (judged[-2:], 100 in judged) == ([39, 200], False)
        (event,) = [each for each in wire.values("events") if each["type"] == "RequestsLost"]
        assert event["detail"]["to_offset"] <= was
        refused = [each for each in wire.values("events") if each["type"] == "RequestRejected"]
        assert [each for each in refused if "not signed" in each["reason"]] == []
    own_stack.stop_job()
    start_job()


@pytest.mark.timeout(900)
def test_the_other_topics_of_the_job_are_cut_while_it_is_away(
    own_stack: Stack, start_job: Callable[..., None], tmp_path: Path
) -> None:
    """`coord.offsets`: no start goes on, as with the requests. `coord.committed`: a rebuild began
    with older positions, and nobody was told.  # INV-104  # INV-153"""
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        for number in range(40):
            asked = commit(wire, number)
        wire.answer(asked)
        row = {"topic": "t", "partition": 1, "offset": 7, "generation": -1}
        for _ in range(20):
            value = {"v": 1, "type": "OffsetCommit", "group": "other", "offsets": [row]}
            wire.send_raw(json.dumps(value).encode(), "other", "offsets", 0)
        wire.answer(commit(wire, 41))
        wire.answer(commit(wire, 42))
    own_stack.stop_job()
    cut(own_stack, "offsets", "committed")

    with pytest.raises(Exception, match=r"coord\.offsets, partition 0, offsets"):
        start_job()
    own_stack.checkpoint.rename(tmp_path / "was")
    with pytest.raises(Exception, match=r"coord\.committed, partition 0, ends at offset"):
        start_job("--rebuild")
    assert own_stack.job.exit_code == exit_codes.REFUSED
    start_job("--rebuild", "--accept-loss")
    with Wire(own_stack.bootstrap_servers) as wire:
        assert wire.answer(commit(wire, 200))["error"] == "NONE"
    own_stack.stop_job()
    own_stack.checkpoint.rename(tmp_path / "accepted")
    start_job("--rebuild")


def test_a_log_that_is_cut_under_the_job_while_members_write(
    own_stack: Stack, start_job: Callable[..., None]
) -> None:
    """It has grown beyond the judged place at once: the job looked at nothing but offsets.

    # INV-104
    """
    start_job()
    with Wire(own_stack.bootstrap_servers) as wire:
        for number in range(40):
            asked = commit(wire, number)
        wire.answer(asked)
    was = end_of(own_stack)
    programs = belonging_to(own_stack.home, "job")
    for program in programs:  # so that it looks when the log has grown again
        program.signal(SIGSTOP)
    try:
        cut(own_stack)
        # Of another producer: the broker has lost the numbers of the first one, which is fatal.
        with Wire(own_stack.bootstrap_servers) as wire:
            while end_of(own_stack) < was + 5:
                commit(wire, 100)
    finally:
        for program in programs:
            program.signal(SIGCONT)
    wait_until("the job ends", lambda: not own_stack.job.is_running, 120)

    assert own_stack.job.exit_code == exit_codes.REFUSED
    assert "another record is there than was read" in own_stack.last_job_lines(60)
    with pytest.raises(Exception, match="another record is there"):
        start_job()
