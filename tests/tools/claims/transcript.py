"""Transcripts of claims: the first command is `claims`, then everything is said to one partition.

    claims [TOPIC] [partitions=N] [partition=M] [begins=OFFSET]
    C claim T/P             ClaimingPartition
    C beat T/P=OFFSET       Heartbeat with the epoch that C knows; reclaim T/P: a bare one
    C release T/P=OFFSET    ReleasingPartition
    C claims-messages T/P=OFFSET
    C pause SECONDS         ReleaseGroup; 0 and less: the group goes on
    raw TEXT                a record of these bytes; `none`: a record without a value
    wait MS                 time passes, by records that mean nothing
    late                    from here on a second reader, who has read nothing before
    snapshot                from here on a reader that begins with a snapshot as it is now
    batch, rebuild          the batch ends; the state is lost and made from snapshot and log
    show                    slots and pauses as they stand

A word `marshal` makes C a client of Marshal's own; `skew=SECONDS` puts its clock ahead; `unstamped`
has no broker's time; `instance=`, `epoch=`, `process=`, `group=`, `version=` set what is written.
A client knows the epoch of its newest win. Each record gives a line with its judgement, then lines
of history; a reader that judges otherwise gives a line of its own.
"""

import shlex
from collections.abc import Callable, Iterator
from typing import Any, Final

from coordlib.core.claims import fold
from coordlib.core.claims.slots import Judgement, Key, Slot, Slots, Verdict
from coordlib.core.claims.snapshots import read_pages
from coordlib.core.claims.world import World
from coordlib.core.engine.effects import SNAPSHOTS
from coordlib.core.wire import claims as marshal
from tests.tools.claims import driving
from tests.tools.claims.driving import Talk, process_of
from tests.tools.notation import render

_TYPES: Final = {
    "claim": "ClaimingPartition",
    "beat": "Heartbeat",
    "reclaim": "Heartbeat",
    "release": "ReleasingPartition",
    "claims-messages": "ClaimingMessages",
    "pause": "ReleaseGroup",
}
_NOTHING: Final = b"ClaimingMessages/1/0/nobody/nobody/nobody/%s/0/0"


class ClaimsSession:
    """A transcript of claims while it runs."""

    def __init__(self) -> None:
        self.talk = Talk()
        #: Other readers, by what they are called.
        self._readers: dict[str, World] = {}
        #: Client and slot -> the epoch of its newest win.
        self._epochs: dict[tuple[str, Key], int] = {}

    def run(self, line: str) -> list[str]:
        """Carry out one command; what follows, as lines."""
        after_ms = 0
        if line.startswith("+"):
            step, _, line = line.partition(" ")
            after_ms = int(step[1:])
        if line.startswith("raw "):
            text = line[4:]
            return self._send(None if text == "none" else _bytes(text), after_ms)
        words = shlex.split(line)
        if words[0] in _WORDS:
            self.talk.now_ms += after_ms
            return _WORDS[words[0]](self, words[1:])
        self.talk.now_ms += after_ms
        message, is_stamped = self._message(words[0], words[1], words[2:])
        return self._send(marshal.encode(message), 0, is_stamped)

    def _message(self, client: str, verb: str, words: list[str]) -> tuple[marshal.AnyMessage, bool]:
        flags = {word for word in words if word in ("marshal", "unstamped")}
        fields = dict(word.split("=") for word in words[1:] if "=" in word)
        place, _, position = words[0].partition("=")
        time_s = self.talk.now_ms // 1_000 + int(fields.get("skew", "0"))
        made: dict[str, Any] = {"client": client, "time_s": time_s}
        made["group"] = fields.get("group", "g")
        if verb == "pause":
            made["expire_s"] = time_s + int(place)
        else:
            topic, _, partition = place.rpartition("/")
            made |= {"topic": topic, "partition": int(partition)}
            if verb not in ("claim", "reclaim"):
                made["offset"] = int(position)
            key = (made["group"], topic, int(partition))
            epoch = self._epochs.get((client, key), marshal.BARE)
        if verb in ("claim", "reclaim", "pause"):
            epoch = marshal.BARE
        epoch = int(fields.get("epoch", epoch))
        own = marshal.instance_of(fields.get("process", process_of(client)), epoch)
        made["instance"] = fields.get("instance", f"i-{client}" if "marshal" in flags else own)
        usual = 1 if "marshal" in flags else marshal.OUR_VERSION
        made["version"] = int(fields.get("version", usual))
        return driving.message(_TYPES[verb], 0, made), "unstamped" not in flags

    def _send(self, value: bytes | None, after_ms: int = 0, is_stamped: bool = True) -> list[str]:
        judgement = self.talk.send(value, after_ms, is_stamped)
        self._learn(judgement)
        said = [render(each) for each in self.talk.news()]
        return [_line(judgement), *said, *self._others(judgement)]

    def _learn(self, judgement: Judgement) -> None:
        if judgement.verdict in (Verdict.WON, Verdict.RECLAIMED):
            assert judgement.key
            assert judgement.after
            place = (judgement.after.client, judgement.key)
            self._epochs[place] = judgement.after.epoch

    def _others(self, judgement: Judgement) -> Iterator[str]:
        for name, reader in self._readers.items():
            other = reader.judge(self.talk.log[-1])
            if _line(other) != _line(judgement):
                yield f"  {name}: {_line(other)}"

    # -- words that nobody sends -----------------------------------------------------------

    def claims(self, words: list[str]) -> list[str]:
        fields = dict(word.split("=") for word in words if "=" in word)
        topic = next((word for word in words if "=" not in word), driving.TOPIC)
        where = int(fields.get("partition", 0)), int(fields.get("partitions", 1))
        self.talk = Talk(driving.settings(topic, *where), int(fields.get("begins", 0)))
        return []

    def wait(self, words: list[str]) -> list[str]:
        """Steps below CAP, so that all of it counts."""
        left_ms, lines = int(words[0]), []
        while left_ms > 0:
            step_ms = min(left_ms, self.talk.claims.world.cap_ms)
            left_ms -= step_ms
            lines += self._send(_NOTHING % b"t", step_ms)
        return [line for line in lines if "nobody" not in line]

    def late(self, _words: list[str]) -> list[str]:
        self._readers[f"late@{self.talk.next_offset}"] = self._reader(is_late=True)
        return []

    def snapshot(self, _words: list[str]) -> list[str]:
        world, of = self.talk.claims.world, self.talk.settings
        where = world.topic, of.shard, of.shards
        reader = World.restore(world.snapshot(), *where)
        self._readers[f"snapshot@{world.offset}"] = reader
        return []

    def batch(self, _words: list[str]) -> list[str]:
        return [render(each) for each in self.talk.end_batch()]

    def rebuild(self, _words: list[str]) -> list[str]:
        lines = self.batch([])
        pages = {each.key: each.value for each in self.talk.outputs if each.topic == SNAPSHOTS}
        snapshot = read_pages(value for value in pages.values() if value is not None)
        blob = None if snapshot is None else fold.begin_at(snapshot)
        after = -1 if snapshot is None else snapshot.offset
        behind = [each for each in self.talk.log if each.offset > after]
        self.talk.load(fold.fold(blob, behind, self.talk.settings).blob)
        return lines

    def show(self, _words: list[str]) -> list[str]:
        """As the engine has it; a reader that differs below."""
        world = self.talk.claims.world
        lines = list(_shown(world))
        for name, reader in self._readers.items():
            others = list(_shown(reader))
            if others != lines:
                lines += [f"  {name}: {line}" for line in others]
        return lines

    def _reader(self, *, is_late: bool) -> World:
        of = self.talk.settings
        return World(self.talk.claims.world.topic, of.shard, of.shards, is_late=is_late)


_WORDS: dict[str, Callable[[ClaimsSession, list[str]], list[str]]] = {
    "claims": ClaimsSession.claims,
    "wait": ClaimsSession.wait,
    "late": ClaimsSession.late,
    "snapshot": ClaimsSession.snapshot,
    "batch": ClaimsSession.batch,
    "rebuild": ClaimsSession.rebuild,
    "show": ClaimsSession.show,
}


def _bytes(text: str) -> bytes:
    r"""A text with `\xNN` for bytes that have no letter."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1")


def _line(judgement: Judgement) -> str:
    """What became of a record: `won t/0 a epoch=3 position=7`."""
    message = judgement.message
    words = [judgement.verdict.value, judgement.error]
    if judgement.key is not None:
        group, topic, partition = judgement.key
        words.append(f"{'' if group == 'g' else group + ':'}{topic}/{partition}")
    elif message is not None:
        words.append(message.group)
    changed = judgement.after is not None and judgement.after is not judgement.before
    if changed and judgement.after is not None:
        words.append(_slot(judgement.after))
    elif message is not None:
        words.append(f"by {message.client}")
    return " ".join(word for word in words if word)


def _slot(slot: Slot) -> str:
    words = [slot.client, f"epoch={slot.epoch}"]
    words += [] if slot.position is None else [f"position={slot.position}"]
    words += [] if slot.proposed is None else [f"proposed={slot.proposed}"]
    words += ["tentative"] if slot.is_tentative else []
    return " ".join(words)


def _shown(slots: Slots) -> Iterator[str]:
    for key, slot in sorted(slots.slots.items()):
        group, topic, partition = key
        where = f"{'' if group == 'g' else group + ':'}{topic}/{partition}"
        how = "live" if slots.is_live(slot) else "released" if slot.is_released else "stale"
        age_ms = slots.clock_ms - slot.heard_ms
        yield f"slot {where} {how} {_slot(slot)} instance={slot.instance} heard={age_ms}"
    for group, (until_ms, client) in sorted(slots.pauses.items()):
        left_ms = until_ms - slots.clock_ms
        yield f"pause {group} by {client} " + (f"left={left_ms}" if left_ms > 0 else "over")
