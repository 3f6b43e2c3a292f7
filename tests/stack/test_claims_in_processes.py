"""Consumers of claims in processes of their own, on a real broker, without any job."""

import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from coordlib.coordinators.claims.slot import Verdict
from tests.stack.claimers import HI_S, Claimer, Claimers

if TYPE_CHECKING:
    from coordlib.local.broker import Broker

pytestmark = pytest.mark.stack


def test_one_is_killed_and_one_stops_while_it_works(broker: "Broker", tmp_path: Path) -> None:
    """SIGKILL: taken over in 2·HI and a little. SIGSTOP beyond 2·HI and SIGCONT: it touches
    nothing afterwards, and its signs are refused."""
    with Claimers(broker.bootstrap_servers, tmp_path, 2) as all_:
        all_.put(40)
        a = all_.start("a", maximum_claims=1)
        all_.wait("a claims", lambda: a.partitions)
        b = all_.start("b", work_s=0.4, maximum_claims=1, release_claims_if_behind=False)
        all_.wait("b works", lambda: b.told("working") and len(b.partitions) == 1)
        c = all_.start("c")
        all_.wait("c is there", lambda: c.told("ready"))
        mine, theirs = a.partitions, b.partitions
        assert mine | theirs == {0, 1}
        a.kill()
        _stop_in_the_middle(all_, b)
        took_s = all_.wait("c has both", lambda: c.partitions == {0, 1})
        assert took_s < 2 * HI_S + HI_S / 5 + 3
        before = b.lines
        b.signal(signal.SIGCONT)
        all_.wait("b gives up", lambda: b.told("gave_up") and b.told("refused"))
        all_.put(20)
        all_.wait("all is read", lambda: set(all_.done("record")) >= all_.every_record())

        assert c.partitions == {0, 1}
        after = b.lines[len(before) :]
        epochs = {line["epoch"] for line in before if line["what"] in ("working", "record")}
        assert not [line for line in after if line.get("epoch") in epochs]
        assert {line["error"] for line in b.told("refused")} == {"ClaimLost"}
        _tokens_rise(all_)


def _stop_in_the_middle(all_: Claimers, of: Claimer) -> None:
    """Stop it between `working` and what follows it."""

    def works() -> bool:
        of.signal(signal.SIGSTOP)
        if of.lines[-1]["what"] == "working":
            return True
        of.signal(signal.SIGCONT)
        return False

    all_.wait(f"{of.client} is in the middle of a record", works)


def _tokens_rise(all_: Claimers) -> None:
    """In the log: epochs of a slot rise, and no sign of an earlier one counts again."""
    newest: dict[object, int] = {}
    for judgement in all_.judgements():
        if judgement.verdict in (Verdict.WON, Verdict.SIGN, Verdict.RECLAIMED):
            assert judgement.after is not None
            assert judgement.after.epoch >= newest.get(judgement.key, -1)
            newest[judgement.key] = judgement.after.epoch


@pytest.mark.chaos
def test_nothing_is_handed_out_twice_at_most_once(broker: "Broker", tmp_path: Path) -> None:
    """Kills and stops at any moment; how many were never handed out is said."""
    luck = Random(15)
    with Claimers(broker.bootstrap_servers, tmp_path, 4) as all_:
        live = [all_.start(f"c{n}", delivery="at-most-once", work_s=0.01) for n in range(3)]
        all_.wait("all are there", lambda: all(each.told("ready") for each in live))
        for number in range(10):
            all_.put(200)
            read_before = len(all_.done())
            all_.wait("some is read", lambda at=read_before: len(all_.done()) > at)
            victim = live.pop(0)
            if luck.random() < 0.5:
                victim.kill()
                name = luck.choice([victim.client, f"n{number}"])
            else:
                victim.signal(signal.SIGSTOP)
                all_.wait("2·HI", lambda v=victim: _is_taken_over(all_, v))
                victim.signal(signal.SIGCONT)
                victim.signal(signal.SIGTERM)
                name = f"n{number}"
            live.append(all_.start(name, delivery="at-most-once", work_s=0.01))
        all_.wait(
            "claims settle", lambda: set().union(*(e.partitions for e in live)) == set(range(4))
        )
        all_.put(40)
        last = {place for place in all_.every_record() if place[1] >= all_.written // 4 - 10}
        all_.wait("the rest is read", lambda: set(all_.done("record", "gave_up")) >= last)

        read = all_.done("record", "gave_up")
        assert len(read) == len(set(read))
        print(f"never handed out: {len(all_.every_record() - set(read))} of {all_.written}")


def _held(some: list[Claimer]) -> set[int]:
    return {number for each in some for number in each.partitions}


def _is_taken_over(all_: Claimers, victim: Claimer) -> bool:
    others = [each for each in all_.all if each is not victim and each.process.poll() is None]
    return victim.partitions <= _held(others)
