"""A broker whose clock is set ahead and back while it runs. Nobody else's clock moves.

`libfaketime` (the optional extra `chaos`) stands between the broker's JVM and the system's clock,
and adds to the time of day what a file says. Durations (CLOCK_MONOTONIC) stay as they are, as on a
machine whose clock somebody sets. It reads the file about once a second.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.local.broker import Broker
from tests.kit.waiting import wait_until

#: In it, every record bears the broker's own time.
TOPIC: Final = "clock"
NEAR_MS: Final = 60_000


def works(libfaketime: Any) -> bool:
    """Whether its binary is of this machine's kind: a package for any machine may hold another."""
    clock = [sys.executable, "-c", "import time; print(time.time())"]
    environment = os.environ | _environment(libfaketime) | {"FAKETIME": "+1h"}
    told = subprocess.run(clock, env=environment, capture_output=True, text=True, check=False)
    return told.returncode == 0 and float(told.stdout) > time.time() + NEAR_MS / 1000


def _environment(libfaketime: Any) -> dict[str, str]:
    _, environment = libfaketime.get_reload_information()
    return dict(environment)


class BrokerClock:
    """The clock of one broker.

    Args:
        libfaketime: the imported module.
        broker: it runs already, and is started anew.
        file: where the clock is set.
    """

    def __init__(self, libfaketime: Any, broker: Broker, file: Path) -> None:
        self._file, self._ahead_ms = file, 0
        self._write(0)
        environment = _environment(libfaketime)
        # Else it would read the file at every look at the clock.
        del environment["FAKETIME_NO_CACHE"]
        own = {"FAKETIME_CACHE_DURATION": "1", "FAKETIME_TIMESTAMP_FILE": str(file)}
        broker.stop()
        with patch.dict(os.environ, environment | own | {"NO_FAKE_STAT": "1"}):
            broker.start()
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        topic = NewTopic(TOPIC, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
        admin = AdminClient(servers)
        admin.create_topics([topic])[TOPIC].result(30)
        self._producer = Producer(servers | {"linger.ms": 0})

    def set_ahead(self, ahead_ms: int) -> None:
        """Returns when the broker stamps records with the time that it has by now."""
        before_ms = self.now_ms()
        step_ms = ahead_ms - self._ahead_ms
        self._ahead_ms = ahead_ms
        self._write(ahead_ms)
        wait_until(
            f"the broker's clock is {ahead_ms} ms ahead",
            lambda: abs(self.now_ms() - before_ms - step_ms) < NEAR_MS,
        )

    def now_ms(self) -> int:
        """What the broker takes for the time."""
        taken: list[Message] = []
        self._producer.produce(
            TOPIC, b"", on_delivery=lambda error, message: taken.append(error or message)
        )
        self._producer.flush(30)
        assert isinstance(taken[0], Message), taken[0]
        return taken[0].timestamp()[1]

    def _write(self, ahead_ms: int) -> None:
        """It is read at any moment: whole or not at all."""
        new = self._file.with_suffix(".new")
        new.write_text(f"+{ahead_ms / 1000:.0f}\n")
        new.replace(self._file)
