"""Conversations with a shard as text files: what was said, then everything that followed.

    python -m tests.tools.transcript FILE…             show differences, exit 1 if any
    python -m tests.tools.transcript --rewrite FILE…   write what follows now

A file is prose (lines with `#`) and blocks. A block is one or more commands, a line `----`, and the
effects in the notation of `tests.tools.notation`, up to an empty line.

    a join
    +200 b join protocols=range:m,sticky:n
    ----
    event GroupCreated …

A command may begin with `+MS`, the time since the record before; default 0. Then a client and
what it sends, or a word that nobody sends:
    C join            first JoinGroup: no member id                        fields of JoinGroup
    C rejoin          JoinGroup under the id and generation that C knows
    C sync X=BYTES…   SyncGroup; for the leader with assignments by client, or error= and message=
    C heartbeat
    C leave           itself; member= instance=I: whoever has that id; remain=1: keeps its place;
                      members=ID/INSTANCE,…: several at once, each by one of the two or both
    C commit T/P=OFFSET…     as a member;  C position T/P=OFFSET…  as no member, in coord.offsets
    C fetch T/P…      these partitions, or all that are committed; stable=1: none that wait
    C pends T/P=OFFSET…      PendingCommit as a member, decided by Kafka, or by a table: table=NAME
    C decides         DecidePending: pending=KEY result=commit|abort reason=
    C delete-offsets T/P…        OffsetDelete
    C subscribe       first Subscribe: topics=T,… (default t) pattern= exclude= strategy= capacity=
    C resubscribe     Subscribe under the id and generation that C knows
    C lets-go T/P=OFFSET…   Release of its oldest demand, or of cause=
    C describe, C delete, C find DescribeGroup, DeleteGroup, FindCoordinator
    C release         ReleaseQuarantine
    raw TEXT          a record of these bytes
    topics T=COUNT…   TopicMetadata: the cluster's topics, all of them
    ended             TxnDecided: committed=OFFSET,… aborted=OFFSET,… of records that were pending
    tick              covers all that was written;  tick published=N  covers up to N
    wait MS           ticks of 1 s that cover nothing new
    batch             the batch ends, the next one begins from its blob
    rebuild           the same from the compacted topics alone
    break STEP NAME   from now on every JoinGroup, … or deadline of this group (g) or id raises;
                      heal
    show              the group as it stands
    settings K=V…     bounds of groups, before the first record

What brokers say stands in `tests.tools.broker_transcript`; what transactional producers say, and
the driver of their messages, in `tests.tools.producer_transcript`. Further `key=value` words set
fields of the request: id, group, member, generation, session, rebalance, protocols=NAME:METADATA,…,
topics=T,… (a consumer's subscription), type, reason, reply, instance. A client knows its member id
and its generation from its newest answer; ids of requests count up by themselves (a1, a2, …).
"""

import argparse
import difflib
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coordlib.core.engine.effects import REQUESTS, RESPONSES
from coordlib.core.groups.assigned.group import Group as AssignedGroup
from coordlib.core.groups.protocol import COMMITS
from coordlib.core.wire import api
from tests.tools import assigned_groups, driving, producer_transcript
from tests.tools.broker_transcript import VERBS, BrokerWords
from tests.tools.claims.transcript import ClaimsSession
from tests.tools.core import restored
from tests.tools.defects import Defect, in_force
from tests.tools.driving import Conversation
from tests.tools.producer_transcript import ProducerWords
from tests.tools.transcript_words import by_name, leaver, offsets, places_in, typed

RULER = "----"


class Session:
    """A transcript while it runs: the shard, and what each client knows."""

    def __init__(self, known: Mapping[str, tuple[str, int]] | None = None) -> None:
        self.talk = Conversation()
        #: By client: its member id and its generation.
        self._known: dict[str, tuple[str, int]] = dict(known or {})
        #: By member id: causes of what it was asked to let go of.
        self._demands: dict[str, list[int]] = {}
        self._count: dict[str, int] = {}
        self._read = 0
        self._defects: list[Defect] = []
        self._of_brokers = BrokerWords(lambda: self.talk)
        self._of_producers = ProducerWords(lambda: self.talk)

    def run(self, line: str) -> list[str]:
        """Carry out one command; the effects as lines."""
        with in_force(self._defects):
            return self._run(line)

    def _run(self, line: str) -> list[str]:
        after_ms = 0
        if line.startswith("+"):
            step, _, line = line.partition(" ")
            after_ms = int(step[1:])
        if line.startswith("raw "):
            return self.talk.send(line[4:].encode(), after_ms)
        words = shlex.split(line)
        if words[0] in _WORDS:
            self.talk.now_ms += after_ms
            return _WORDS[words[0]](self, words[1:])
        lines = self._say(words[0], words[1], words[2:], after_ms)
        self._listen()
        return lines

    def _say(self, client: str, verb: str, words: list[str], after_ms: int) -> list[str]:
        self._count[client] = self._count.get(client, 0) + 1
        if verb in producer_transcript.VERBS:
            words = [f"id={client}.{self._count[client]}", *words]
            return self.talk.send(self._of_producers.request(client, verb, words), after_ms)
        if verb in VERBS:
            made = self._of_brokers.numbered(client, verb, words, self._count[client])
            return self.talk.send(made, after_ms)
        fields = by_name(words)
        fields.setdefault("id", f"{client}{self._count[client]}")
        request = self._request(client, verb, fields)
        return self.talk.send(request, after_ms, COMMITS if verb == "position" else REQUESTS)

    def request(self, line: str) -> Any:
        """The request of one command, which is not sent; without id= it has that of `driving`."""
        client, *words = shlex.split(line)
        if client == "topics":
            return _listing(words)
        if words[0] in producer_transcript.VERBS:
            return self._of_producers.request(client, words[0], words[1:])
        if words[0] in VERBS:
            return self._of_brokers.request(client, words[0], words[1:])
        return self._request(client, words[0], by_name(words[1:]))

    def _request(self, client: str, verb: str, words: dict[str, str]) -> Any:
        if verb in ("subscribe", "resubscribe", "lets-go"):
            return self._request_where_divided(client, verb, words)
        if verb == "fetch" and (places := places_in(words)):
            rows = tuple(api.TopicPartitions(topic, (partition,)) for topic, partition in places)
            rest = {name: value for name, value in words.items() if "/" not in name}
            return driving.fetch(client, topics=rows, **typed(rest))
        if verb in ("pends", "decides"):
            return self._request_of_transactions(client, verb, typed(words))
        if verb in _ABOUT_GROUPS:
            return _ABOUT_GROUPS[verb](client, **typed(words))
        return self._request_of_kafka(client, verb, typed(words))

    def _request_of_kafka(self, client: str, verb: str, fields: dict[str, Any]) -> api.AnyRequest:
        member, generation = self._known.get(client, ("", -1))
        if verb == "join":
            return driving.join(client, **fields)
        if verb == "delete-offsets":
            places = places_in(fields)
            rest = {name: value for name, value in fields.items() if "/" not in name}
            return driving.delete_offsets(client, *places, **rest)
        if verb in ("commit", "position"):
            fields["offsets"] = offsets(fields)
        if verb == "position":
            return driving.commit(client, **fields)
        member = fields.pop("member", member)
        if verb == "leave":
            leavers = [api.Leaver(member, fields.pop("instance", None))]
            if "members" in fields:
                leavers = [leaver(each) for each in fields.pop("members").split(",")]
            return driving.leave(client, *leavers, **fields)
        generation = fields.pop("generation", generation)
        if verb == "rejoin":
            return driving.join(client, member=member, generation=generation, **fields)
        if verb == "sync":
            named = [c for c in fields if c in self._known]
            shares = {self._known[c][0]: fields.pop(c).encode() for c in named}
            return driving.sync(client, generation, member, assignments=shares, **fields)
        if verb == "heartbeat":
            return driving.heartbeat(client, generation, member, **fields)
        return driving.commit(client, generation, member, **fields)

    def _request_of_transactions(
        self, client: str, verb: str, fields: dict[str, Any]
    ) -> api.AnyRequest:
        member, generation = self._known.get(client, ("", -1))
        fields = {"member": member, "generation": generation, **fields}
        if verb == "decides":
            return driving.decide(client, **fields)
        fields["offsets"] = offsets(fields)
        pends = driving.with_writes if "table" in fields else driving.pending_commit
        return pends(client, **fields)

    def _request_where_divided(self, client: str, verb: str, words: dict[str, str]) -> Any:
        """What only members of server-assigned groups write."""
        wanted = {"topics": tuple(words.pop("topics").split(","))} if "topics" in words else {}
        fields = {**typed(words), **wanted}
        member, generation = self._known.get(client, ("", -1))
        member = fields.pop("member", member)
        if verb == "lets-go":
            fields["offsets"] = offsets(fields)
            generation = fields.pop("generation", generation)
            cause = fields.pop("cause", None)
            due = self._demands[member].pop(0) if cause is None else cause
            return assigned_groups.let_go(client, generation, member, due, **fields)
        if verb == "resubscribe":
            fields = {"member": member, "generation": generation, **fields}
        return assigned_groups.subscribe(client, **fields)

    def _listen(self) -> None:
        """What clients learn: from answers to those who join, and from pictures of what is theirs.

        A client that has nothing to do with a picture (it stands for another member) misses it.
        """
        for output in self.talk.outputs[self._read :]:
            value = json.loads(output.value or b"{}") if output.topic == RESPONSES else {}
            kind, member = value.get("type"), value.get("member")
            if kind in ("JoinGroup", "Subscribe") and member:
                known = self._known.get(value["client"], ("", -1))[1]
                self._known[value["client"]] = (member, value.get("generation", known))
            if kind == "AssignmentChanged":
                for client, (its_id, _) in self._known.items():
                    if its_id == member:
                        self._known[client] = (its_id, value["generation"])
            if kind in ("Subscribe", "AssignmentChanged") and "release" in value:
                self._demands[value["member"]] = [row["cause"] for row in value["release"]]
        self._read = len(self.talk.outputs)

    def tick(self, words: list[str]) -> list[str]:
        fields = dict(word.split("=") for word in words)
        lines = self.talk.tick(int(fields["published"]) if fields else None)
        self._listen()
        return lines

    def wait(self, words: list[str]) -> list[str]:
        lines = self.talk.wait(int(words[0]))
        self._listen()
        return lines

    def batch(self, _words: list[str]) -> list[str]:
        return self.talk.end_batch()

    def rebuild(self, _words: list[str]) -> list[str]:
        lines = self.talk.end_batch()
        self.talk.load(restored(self.talk.outputs, self.talk.shard.status().position))
        return lines

    def topics(self, words: list[str]) -> list[str]:
        lines = self.talk.send(_listing(words))
        self._listen()
        return lines

    def show(self, words: list[str]) -> list[str]:
        group = self.talk.group(*words)
        if isinstance(group, AssignedGroup):
            return list(assigned_groups.shown(group))
        yields = f"group {group.group} {group.state.value} generation={group.generation}"
        members = [
            f"member {m.member}"
            + (f" waits for {m.parked.kind}" if m.parked else "")
            + (f" assignment={m.assignment.decode()}" if m.assignment else "")
            + (" leads" if m.member == group.leader else "")
            + (" has let go" if m.has_let_go else "")
            for m in group.members.values()
        ]
        waits_for = [
            f"guard {guard.member}" + (f" before {guard.successor}" if guard.successor else "")
            for guard in group.guards.values()
        ] + [f"announced {member_id}" for member_id in group.pending]
        yields += " overdue" if group.is_overdue else ""
        yields += f" failed={group.failure.error}" if group.failure else ""
        return [yields, *members, *waits_for]

    def ended(self, words: list[str]) -> list[str]:
        """The driver has found out how transactions of Kafka ended."""
        found = {name: map(int, value.split(",")) for name, value in by_name(words).items()}
        return self.talk.send(driving.ended(**found))

    def break_(self, words: list[str]) -> list[str]:
        step, *name = words
        self._defects.append(Defect(name[0] if name else "g", step, self.talk.next_offset))
        return []

    def heal(self, _words: list[str]) -> list[str]:
        self._defects.clear()
        return []

    def settings(self, words: list[str]) -> list[str]:
        bounds: dict[str, Any] = {k: int(v) for k, v in (word.split("=") for word in words)}
        self.talk = Conversation(driving.settings(**bounds))
        return []


_WORDS: dict[str, Callable[[Session, list[str]], list[str]]] = {
    "tick": Session.tick,
    "topics": Session.topics,
    "wait": Session.wait,
    "feed": lambda session, _: session.talk.feed(),
    "hear": lambda session, _: session.talk.hear(),
    "ended": Session.ended,
    "epoch": lambda session, words: producer_transcript.come_to(session.talk, int(words[0])),
    "batch": Session.batch,
    "rebuild": Session.rebuild,
    "break": Session.break_,
    "heal": Session.heal,
    "show": Session.show,
    "settings": Session.settings,
}


#: Requests that need no more than a group.
_ABOUT_GROUPS: dict[str, Callable[..., api.AnyRequest]] = {
    "fetch": driving.fetch,
    "release": driving.release,
    "describe": driving.describe,
    "delete": driving.delete,
    "find": driving.find,
}


def _listing(words: list[str]) -> api.TopicMetadata:
    return assigned_groups.topics({name: int(n) for name, n in by_name(words).items()})


def replay(text: str) -> str:
    """The transcript with the effects that follow now."""
    lines = text.splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    is_about_claims = bool(commands) and commands[0].split()[0] == "claims"
    session = ClaimsSession() if is_about_claims else Session()
    return "\n".join(_replay(session, lines)) + "\n"


def _replay(session: Session | ClaimsSession, lines: list[str]) -> Iterator[str]:
    commands: list[str] = []
    skips = False
    for line in [*lines, ""]:
        if skips and line:
            continue
        if line == RULER:
            yield RULER
            for command in commands:
                yield from session.run(command)
            commands, skips = [], True
        elif line or lines:
            if line and not line.startswith("#"):
                commands.append(line)
            skips = False
            yield line


def differences(path: Path) -> list[str]:
    """How a file differs from what follows now; empty when it does not."""
    text = path.read_text()
    now = _trimmed(replay(text))
    return list(difflib.unified_diff(text.splitlines(), now.splitlines(), path.name, "now", ""))


def _trimmed(text: str) -> str:
    return text.rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run files; 1 when one differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.transcript")
    parser.add_argument("--rewrite", action="store_true", help="write what follows now")
    parser.add_argument("files", nargs="+", type=Path)
    chosen = parser.parse_args(arguments)
    differs = False
    for path in chosen.files:
        if chosen.rewrite:
            path.write_text(_trimmed(replay(path.read_text())))
            continue
        for line in differences(path):
            differs = True
            print(line)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
