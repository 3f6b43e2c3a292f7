"""The broker is killed under consumers of claims and under the job that follows them."""

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordlib.local.stack import Stack
from tests.kit.waiting import wait_until
from tests.stack.chaos.conftest import Tell
from tests.stack.chaos.scene import supervised
from tests.stack.claimants import Claimants
from tests.stack.claimers import COORDINATION, HI_S, Claimer, Claimers

pytestmark = [pytest.mark.stack, pytest.mark.fault, pytest.mark.chaos]

PLACES = {0, 1, 2, 3}


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A broker with a coordination topic, whose job follows it."""
    stack = Stack(tmp_path / "stack", claims=COORDINATION)
    stack.start_broker()
    yield stack
    gc.collect()  # clients that are not closed would tell that the broker is gone
    stack.down()


def test_the_broker_is_killed_under_consumers_of_claims_and_their_job(
    own_stack: Stack, start_job: Callable[..., None], tmp_path: Path, tell: Tell
) -> None:
    """SIGKILL, once for less than an interval and once for longer than anybody's fence. Consumers
    need no job and the job no consumers: each comes back by itself. Afterwards the job has written
    each change of owner once, and its snapshot is what the log says.  # INV-34, INV-61, INV-65"""
    start_job()
    with Claimers(own_stack.bootstrap_servers, tmp_path, len(PLACES)) as all_:
        all_.put(200)
        live = [all_.start(f"c{n}", work_s=0.02, maximum_claims=2) for n in range(2)]
        live.append(all_.start("waits", work_s=0.02))
        all_.until("all is claimed", lambda: all_.held_by(live) == PLACES)
        log = Claimants(own_stack.bootstrap_servers)
        wait_until("the job follows", lambda: bool(log.judged()), 120.0)
        with supervised(own_stack, start_job) as ended:
            for away_s in (HI_S / 3, 2.5 * HI_S):
                _break(own_stack, all_, live, away_s)
            all_.until("all is read", lambda: set(all_.done("record")) >= all_.every_record())
            time.sleep(4 * HI_S)  # the log is to be long enough for a reader that begins in it
            for each in live:
                all_.kill(each.name)
            log.until_all_is_judged()
        assert set(ended) <= {1}, "to be started again"

        all_.tokens_rise()
        all_.keeps_every_promise()
        events = log.holds()
    tell(f"{events} lines of history, the job was started {len(ended)} times again")


def _break(stack: Stack, all_: Claimers, live: list[Claimer], away_s: float) -> None:
    """Kill the broker, and bring it back; returns when all is claimed again."""
    stack.broker.kill()
    time.sleep(away_s)
    if away_s > HI_S:
        # Longer than its fence: whoever polls was told of the loss.
        for each in live:
            all_.until(f"{each.client} lets go", lambda e=each: not e.partitions)
    stack.broker.start()
    all_.put(200)
    all_.until("all is claimed again", lambda: all_.held_by(live) == PLACES)
