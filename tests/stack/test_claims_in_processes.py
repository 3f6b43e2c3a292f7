"""Consumers of claims in processes of their own, on a real broker, without any job."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from coordlib.core.claims.slots import Judgement, Refusal, Verdict
from coordlib.core.wire.claims import Heartbeat, sender_of
from coordlib.demo.history import read as read_history
from tests.stack.claimers import HI_S, Claimer, Claimers
from tests.tools.checking.checkers import never_handed_out

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


def test_one_is_killed_and_one_stops_while_it_works(broker: "Broker", tmp_path: Path) -> None:
    """SIGKILL: taken over in 2·HI and a little. SIGSTOP beyond 2·HI and SIGCONT: it touches
    nothing afterwards, its commit fails, and all that it writes of its claim is refused, a
    heartbeat too.  # INV-50"""
    with Claimers(broker.bootstrap_servers, tmp_path, 2) as all_:
        all_.put(40)
        a = all_.start("a", maximum_claims=1)
        all_.until("a claims", lambda: a.partitions)
        b = all_.start("b", work_s=0.4, maximum_claims=1, release_claims_if_behind=False)
        all_.until("b works", lambda: b.told("working") and len(b.partitions) == 1)
        c = all_.start("c")
        all_.until("c is there", lambda: c.told("ready"))
        mine, theirs = a.partitions, b.partitions
        assert mine | theirs == {0, 1}
        all_.kill(a.name)
        _stop_in_the_middle(all_, b)
        stopped_s = time.monotonic()
        all_.until("c has both", lambda: c.partitions == {0, 1})
        assert time.monotonic() - stopped_s < 2 * HI_S + HI_S / 5 + 3
        before = list(b.lines)
        all_.resume(b.name)
        all_.until("b gives up", lambda: b.told("gave_up") and b.told("refused"))
        all_.put(20)
        all_.until("all is read", lambda: set(all_.done("record")) >= all_.every_record())

        assert c.partitions == {0, 1}
        after = b.lines[len(before) :]
        epochs = {line["epoch"] for line in before if line["what"] in ("working", "record")}
        assert not [line for line in after if line.get("epoch") in epochs]
        assert {line["error"] for line in b.told("refused")} == {"ClaimLost"}
        all_.tokens_rise()
        all_.keeps_every_promise()
        _is_refused_everywhere(all_, b, epochs)


def _is_refused_everywhere(all_: Claimers, woken: Claimer, epochs: set[int]) -> None:
    """What it wrote when it went on, of the claim that it had had: no reader takes any of it. Nor a
    heartbeat that was on its way while it stood still, as in a buffer of the network."""
    of_claim = [each for each in all_.judgements() if _epoch(each, woken.client) in epochs]
    refused = [each for each in of_claim if each.verdict is Verdict.REFUSED]
    assert refused, "it has written that it lets go"
    assert of_claim[-len(refused) :] == refused, "from the first one on"

    sign = next(each.message for each in of_claim if isinstance(each.message, Heartbeat))
    late = all_.write(sign)
    assert late.verdict is Verdict.REFUSED
    assert {each.error for each in (*refused, late)} == {Refusal.OTHER_EPOCH}
    assert late.before == late.after, "it changes nothing"


def _epoch(judgement: Judgement, client: str) -> int | None:
    """Of a message that this client has written as an owner."""
    message = judgement.message
    assert message is not None
    sender = sender_of(message, judgement.offset)
    return sender.epoch if sender is not None and message.client == client else None


def _stop_in_the_middle(all_: Claimers, of: Claimer) -> None:
    """Stop it between `working` and what follows it."""

    def works() -> bool:
        all_.suspend(of.name)
        of.read_on()
        if of.lines[-1]["what"] == "working":
            return True
        all_.resume(of.name)
        return False

    all_.until(f"{of.client} is in the middle of a record", works)


@pytest.mark.chaos
def test_nothing_is_handed_out_twice_at_most_once(broker: "Broker", tmp_path: Path) -> None:
    """Kills and stops at any moment; how many were never handed out is said."""
    luck = Random(15)
    with Claimers(broker.bootstrap_servers, tmp_path, 4) as all_:
        live = [all_.start(f"c{n}", delivery="at-most-once", work_s=0.01) for n in range(3)]
        all_.until("all are there", lambda: all(each.told("ready") for each in live))
        for number in range(10):
            all_.put(200)
            read_before = len(all_.done())
            all_.until("some is read", lambda at=read_before: len(all_.done()) > at)
            victim = live.pop(0)
            if luck.random() < 0.5:
                all_.kill(victim.name)
                name = luck.choice([victim.client, f"n{number}"])
            else:
                all_.suspend(victim.name)
                all_.until("2·HI", lambda v=victim: _is_taken_over(all_, v))
                all_.resume(victim.name)
                name = f"n{number}"
            live.append(all_.start(name, delivery="at-most-once", work_s=0.01))
            if victim.name in all_.running:  # it woke up beside its successor
                all_.stop(victim.name)
        all_.until(
            "claims settle", lambda: set().union(*(e.partitions for e in live)) == set(range(4))
        )
        all_.put(40)
        last = {place for place in all_.every_record() if place[1] >= all_.written // 4 - 10}
        all_.until("the rest is read", lambda: set(all_.done("record", "gave_up")) >= last)

        read = all_.done("record", "gave_up")
        assert len(read) == len(set(read))
        never = never_handed_out(read_history(all_.keeps_every_promise()))
        print(f"never handed out: {len(all_.every_record() - set(read))} of {all_.written}")
        assert never is not None
        assert never <= len(all_.every_record() - set(read))


@pytest.fixture
def own_broker(tmp_path: Path) -> "Iterator[Broker]":
    """A broker that nobody else uses, to be killed."""
    from coordlib.local.broker import Broker
    from coordlib.local.jars import ensure_jars

    running = Broker(tmp_path / "broker", ensure_jars().broker)
    running.start()
    yield running
    gc.collect()  # clients that are not closed would tell that it is gone
    running.stop()


@pytest.mark.chaos
@pytest.mark.fault
def test_the_broker_dies_under_consumers_and_comes_back(
    own_broker: "Broker", tmp_path: Path
) -> None:
    """SIGKILL of the only broker, twice: once for less than an interval, once for longer. Fences
    close by themselves, nobody works meanwhile on what he cannot know to be his, and all goes on
    when it is back, by the log that it has kept."""
    broker = own_broker
    with Claimers(broker.bootstrap_servers, tmp_path, 4) as all_:
        all_.put(200)
        live = [all_.start(f"c{n}", work_s=0.02, maximum_claims=2) for n in range(2)]
        live.append(all_.start("waits", work_s=0.02))
        all_.until("all is claimed", lambda: all_.held_by(live) == set(range(4)))
        for away_s in (HI_S / 3, 2.5 * HI_S):
            broker.kill()
            time.sleep(away_s)
            if away_s > HI_S:
                # Longer than its fence: whoever polls was told of the loss.
                for each in live:
                    all_.until(f"{each.client} lets go", lambda e=each: not e.partitions)
            broker.start()
            all_.put(200)
            all_.until("all is claimed again", lambda: all_.held_by(live) == set(range(4)))
        all_.until("all is read", lambda: set(all_.done("record")) >= all_.every_record())

        all_.tokens_rise()
        all_.keeps_every_promise()


def _is_taken_over(all_: Claimers, victim: Claimer) -> bool:
    others = [all_[name] for name in all_.running if name != victim.name]
    return victim.partitions <= all_.held_by(others)
