"""The example of workers that share tasks, over the real core in memory."""

from collections import Counter

from coordlib.client import TopicPartition
from coordlib.client.kit.requests import Timing
from coordlib.testing.fake_log import FakeLog
from examples.shared_tasks import REPORTS, Worker

TIMING = Timing(session_timeout_ms=8_000, rebalance_timeout_ms=12_000, heartbeat_interval_ms=2_000)


def test_every_report_is_made_by_one_worker_and_by_another_when_it_dies() -> None:
    """The store of the reports refuses older tokens, and never has to."""
    log, made = FakeLog({}), Counter[tuple[str, TopicPartition]]()
    newest: dict[TopicPartition, int] = {}
    transports = {name: log.transport() for name in "abc"}

    def worker(name: str) -> Worker:
        def make(task: TopicPartition, token: int) -> None:
            assert token >= newest.get(task, 0)
            newest[task] = token
            made[name, task] += 1

        return Worker(make, transport=transports[name], client=name, timing=TIMING)

    workers = [worker(name) for name in "abc"]

    def work() -> None:
        for each in workers:
            each.work(0)

    log.advance(6_000, work)
    made.clear()
    work()
    assert Counter(name for name, _ in made) == {"a": 4, "b": 4, "c": 4}
    assert {task.partition for _, task in made} == set(range(REPORTS["reports"]))

    transports["a"].is_cut = True
    log.advance(25_000, work)
    made.clear()
    work()
    assert Counter(name for name, _ in made) == {"b": 6, "c": 6}
