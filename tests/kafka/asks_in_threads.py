"""Asks where logs end, and for topics, in three threads over one client, for some seconds.

    python -m tests.kafka.asks_in_threads BOOTSTRAP TOPIC [SECONDS]

Some of the partitions do not exist. With `AdminClient` in place of `Admin` the process is killed by
a signal within three seconds: see `coordlib.kafka.admin`.
"""

import faulthandler
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec  # type: ignore[attr-defined]

from coordlib.kafka.admin import Admin


def ask(admin: Admin, topic: str) -> None:
    newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = [TopicPartition(name, number) for name in (topic, f"no-{topic}") for number in (0, 1)]
    wait(admin.list_offsets(dict.fromkeys(places, newest), request_timeout=5.0).values())


def look(admin: Admin, topic: str) -> None:
    admin.list_topics(topic, timeout=5.0)


def repeat(turn: Callable[[], None], until_s: float) -> None:
    while time.monotonic() < until_s:
        turn()


def main(bootstrap: str, topic: str, seconds: str = "5") -> None:
    faulthandler.enable()
    admin = Admin({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    until_s = time.monotonic() + float(seconds)
    turns = [partial(ask, admin, topic), partial(ask, admin, topic), partial(look, admin, topic)]
    threads = [threading.Thread(target=repeat, args=(turn, until_s)) for turn in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
