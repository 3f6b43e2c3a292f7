"""One replica of a replicated store: its log in a file, and what it does as a follower."""

import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

from examples.store.wire import Refused


class Entry(NamedTuple):
    """A put, as a log has it."""

    epoch: int
    key: str
    value: Any


class Log:
    """The entries of one replica, in a file that a SIGKILL leaves whole but for its last line."""

    def __init__(self, path: Path) -> None:
        path.touch()
        lines = [line for line in path.read_bytes().splitlines(True) if line.endswith(b"\n")]
        self.entries = [Entry(*json.loads(line)) for line in lines]
        #: Where each entry ends in the file.
        self._ends = [0]
        for line in lines:
            self._ends.append(self._ends[-1] + len(line))
        self._file = path.open("r+b", buffering=0)
        self.cut(len(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def epoch_before(self, offset: int) -> int:
        return self.entries[offset - 1].epoch if offset else -1

    def append(self, entry: Entry) -> int:
        """Returns its offset."""
        self._ends.append(self._ends[-1] + self._file.write(json.dumps(entry).encode() + b"\n"))
        self.entries.append(entry)
        return len(self.entries) - 1

    def cut(self, end: int) -> None:
        del self.entries[end:], self._ends[end + 1 :]
        self._file.truncate(self._ends[end])
        self._file.seek(self._ends[end])

    def newest(self, key: str) -> int:
        """Offset of the newest entry of a key; -1: there is none."""
        offsets = range(len(self.entries) - 1, -1, -1)
        return next((each for each in offsets if self.entries[each].key == key), -1)


class Replica:
    """One partition on this broker."""

    def __init__(self, path: Path) -> None:
        self.log = Log(path)
        #: Guards all of it; notified of every change.
        self.changed = threading.Condition()
        #: The newest leader epoch that was read of; this broker's leadership in it, if it leads.
        self.epoch = -1
        self.leader: object = None

    def enter(self, epoch: int, leader: object = None) -> None:
        """Lead in this epoch, or follow; what waits for the leadership before is not answered."""
        with self.changed:
            self.epoch, self.leader = epoch, leader
            self.changed.notify_all()

    def accept(self, epoch: int, begin: int, before: int, entries: list[Any]) -> dict[str, int]:
        """Take entries from `begin` on, as a follower; `before` is the epoch of the one before.

        Returns `end`, up to where both logs are equal now; or `differs`, where to try next.
        """
        with self.changed:
            if epoch != self.epoch or self.leader:
                is_old = epoch <= self.epoch
                raise Refused("FENCED_LEADER_EPOCH" if is_old else "UNKNOWN_LEADER_EPOCH")
            log = self.log
            if begin > len(log) or log.epoch_before(begin) != before:
                end = min(len(log), begin - 1)
                while log.epoch_before(end) > before:
                    end -= 1  # the leader has nothing of this epoch so far down
                return {"differs": end}
            for offset, entry in enumerate((Entry(*each) for each in entries), begin):
                if offset < len(log) and log.entries[offset].epoch != entry.epoch:
                    log.cut(offset)  # not before it differs: what follows may be acknowledged
                if offset == len(log):
                    log.append(entry)
            return {"end": begin + len(entries)}
