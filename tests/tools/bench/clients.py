"""Client processes as the brokers see them, light: hundreds of readers of responses in one process.

    python -m tests.tools.bench.clients TOPIC PARTITIONS BROKERS CLIENTS HEARTBEAT_MS needed|always

Each has the connections and the reader of a client that has one member (`ResponseReader`), and so
its fetches and its questions for the end. It writes nothing: its heartbeats are the generator's.
That its newest one is judged, it takes from the next Progress a moment later. `always` asks
for the end every 500 ms and fetches every 100 ms, as clients did before a Progress counted.

It says `ready`, begins to count at the first line of its input, and tells at the second.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import TopicPartition

from coordlib.client.kit import reading
from coordlib.client.kit.process import boottime_ms
from coordlib.client.kit.reading import ResponseReader
from coordlib.core.wire import api, codec

STATISTICS_MS: Final = 5_000
START_TIMEOUT_S: Final = 60.0
#: What Progress needs at least after a heartbeat.
JUDGED_AFTER_MS: Final = 100
#: A sixth of the session less the margin, both by default.
LASTS_MS: Final = 5_625
FETCH_WAIT_BEFORE_MS: Final = 100
ALWAYS: Final = "always"


class Statistics:
    """What librdkafka tells of each of its handles: the first and the newest since `begin`."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._newest: dict[str, str] = {}
        self._is_counting = False

    def begin(self) -> None:
        self._is_counting = True

    def take(self, told: str, handle: str) -> None:
        """Kept as it comes: to read all of them would cost more than what is measured."""
        if self._is_counting:
            self._first.setdefault(handle, told)
            self._newest[handle] = told

    def per_second(self) -> dict[str, float]:
        """Bytes received, and requests by kind, of all handles together."""
        sums: Counter[str] = Counter()
        for handle, first in self._first.items():
            before, after = json.loads(first), json.loads(self._newest[handle])
            spent_s = (after["ts"] - before["ts"]) / 1e6
            if spent_s > 0:
                was, became = counted(before), counted(after)
                for what in became:
                    sums[what] += round((became[what] - was[what]) / spent_s * 1_000)
        return {what: value / 1_000 for what, value in sorted(sums.items()) if value}


def counted(told: dict[str, Any]) -> Counter[str]:
    """Of one handle, since it was made."""
    found = Counter({"bytes": int(told["rx_bytes"])})
    for broker in told["brokers"].values():
        found.update({what: int(count) for what, count in broker["req"].items()})
    return found


class LightClient:
    """One of them."""

    def __init__(
        self, config: dict[str, Any], source: TopicPartition, number: int, heartbeat_ms: int
    ) -> None:
        self._reader = ResponseReader(config, f"light-{number}", source)
        self._reader.start(START_TIMEOUT_S)
        self._heartbeat_ms = heartbeat_ms
        # All at different times, as the heartbeats are.
        self._beat_ms = boottime_ms() - number * 37 % heartbeat_ms
        self._is_judged = True

    def turn(self, lasts_ms: int) -> None:
        """What the client's thread does in one round, without its waiting."""
        now_ms = boottime_ms()
        if now_ms - self._beat_ms >= self._heartbeat_ms:
            self._beat_ms, self._is_judged = now_ms, False
        self._reader.ask(now_ms, lambda: lasts_ms)
        self._reader.admin.poll(0)
        for key, value in self._reader.read():
            if not key and lasts_ms:
                self._heard(codec.decode_response(value), now_ms)
        self._reader.is_at_end()

    def _heard(self, message: api.AnyResponse, now_ms: int) -> None:
        is_late = now_ms - self._beat_ms >= JUDGED_AFTER_MS
        if isinstance(message, api.Progress) and is_late and not self._is_judged:
            self._is_judged = True
            self._reader.proved(self._beat_ms)

    def close(self) -> None:
        self._reader.close()


def main(arguments: list[str]) -> int:
    topic, partitions, bootstrap, count, heartbeat_ms, asking = arguments
    lasts_ms = 0 if asking == ALWAYS else LASTS_MS
    if asking == ALWAYS:
        reading.CONFIG["fetch.wait.max.ms"] = FETCH_WAIT_BEFORE_MS
    reading.WAIT_S = 0.0  # one thread goes round all of them
    statistics = Statistics()
    clients = []
    for number in range(int(count)):
        config = {
            "bootstrap.servers": bootstrap,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": lambda told: statistics.take(told, json_name(told)),
        }
        source = TopicPartition(topic, number % int(partitions))
        clients.append(LightClient(config, source, number, int(heartbeat_ms)))
    print("ready", flush=True)
    told = _serve(clients, lasts_ms, statistics)
    print(json.dumps(told), flush=True)
    os._exit(0)  # hundreds of handles are not closed one by one


def json_name(told: str) -> str:
    """The handle's name, which stands first: without reading the rest."""
    return told[: told.index(",")]


def _serve(clients: list[LightClient], lasts_ms: int, statistics: Statistics) -> dict[str, Any]:
    lines: list[str] = []
    listening = threading.Thread(target=_listen, args=(lines,), daemon=True)
    listening.start()
    began_s, before_s = 0.0, 0.0
    while len(lines) < 2:
        if lines and not began_s:
            statistics.begin()
            began_s, before_s = time.monotonic(), _processor_s()
        for client in clients:
            client.turn(lasts_ms)
        time.sleep(0.02)
    spent_s, count = time.monotonic() - began_s, len(clients)
    found = statistics.per_second()
    received = found.pop("bytes", 0.0)
    cores = (_processor_s() - before_s) / spent_s
    return {
        "clients": count,
        "received_bytes_per_s": round(received),
        "received_bytes_per_s_each": round(received / count),
        "requests_per_s_each": {what: round(each / count, 3) for what, each in found.items()},
        "cores": round(cores, 3),
        "processor_ms_per_s_each": round(cores * 1_000 / count, 3),
    }


def _listen(lines: list[str]) -> None:
    for line in sys.stdin:
        lines.append(line)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Clients:
    """The process of them, for the bench that starts it."""

    def __init__(
        self, bootstrap: str, topic: tuple[str, int], count: int, heartbeat_ms: int, asking: str
    ) -> None:
        words = [*map(str, (*topic, bootstrap, count, heartbeat_ms)), asking]
        self._process = subprocess.Popen(  # this very program
            [sys.executable, "-m", __spec__.name, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("The light clients did not start.")

    def begin(self) -> None:
        self._say("begin")

    def figures(self) -> dict[str, Any]:
        """What they have cost since `begin`; they are over then."""
        self._say("tell")
        assert self._process.stdout is not None
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        self._process.wait(30)
        return told

    def close(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
