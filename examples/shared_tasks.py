"""Workers that share tasks: each nightly report is made by one of them, and by the next if it dies.

    python -m examples.shared_tasks localhost:9092

Start it several times, and stop one. There is no topic `reports`: the group's protocol type is
`reporter`, and the tasks are this program's own. A task is named as a partition is.
"""

import argparse
import signal
import threading
import time
from collections.abc import Callable, Mapping

from coordlib.client import ClassicMember, TopicPartition

#: How many reports there are. All workers must give the same answer: the leader's counts.
REPORTS = {"reports": 12}
INTERVAL_S = 1.0


def tasks() -> Mapping[str, int]:
    """The pools of tasks, with their sizes; a real program would read a table."""
    return REPORTS


class Worker:
    """One process of the group.

    Args:
        make: makes one report. It gets the fencing token of the assignment: a store that refuses
            smaller tokens than the greatest that it has seen refuses a worker that came too late.
        options: of `ClassicMember`, at least a config or a transport.
    """

    def __init__(self, make: Callable[[TopicPartition, int], None], **options: object) -> None:
        self._make = make
        self.member = ClassicMember(
            "night-shift",
            protocol_type="reporter",
            tasks=tasks,
            assignors="roundrobin",
            **options,  # type: ignore[arg-type]
        )
        self.member.subscribe(list(REPORTS))

    def work(self, timeout_s: float = INTERVAL_S) -> int:
        """One round over the tasks that are this worker's now; how many it did."""
        self.member.poll(timeout_s)
        done = 0
        for task in self.member.assignment:
            token = self.member.fence_token
            if token is None or not self.member.may_work():
                break  # it was silent for too long: another worker may have the rest
            self._make(task, token)
            done += 1
        return done


def main() -> None:
    """Work until SIGTERM or Ctrl-C, then leave the group."""
    parser = argparse.ArgumentParser(description="A worker that makes its share of the reports.")
    parser.add_argument("bootstrap_servers", help="host:port of the coordinator's cluster of Kafka")
    options = {"config": {"bootstrap.servers": parser.parse_args().bootstrap_servers}}
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    worker = Worker(
        lambda task, token: print(f"{task.topic} {task.partition}, {token}", flush=True), **options
    )
    with worker.member:
        while not stop.is_set():
            worker.work()
            time.sleep(INTERVAL_S)
    print("left the group", flush=True)


if __name__ == "__main__":
    main()
