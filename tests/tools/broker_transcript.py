"""The words of transcripts that brokers and their operators say (`tests.tools.transcript`).

A broker's name is b and its id: b1. It knows its incarnation, member id, state and the record that
gave the state from its newest answer; words like incarnation=, since= and cause= say otherwise.

    b1 register       RegisterBroker: storage= previous= version= rack= session= release=;
                      as a newer process: client=c
    b1 wants Active   BrokerHeartbeat with this target
    b1 isr T/P=1,2…   AlterPartition of these partitions in this order, by the epochs that stand in
                      each row, unless epoch= or partition_epoch= are named; T/P=7:1,2 names the
                      leader epoch of one; incarnations of members are known, 2@0 names another;
                      recovered=1
    b1 lives          Heartbeat of the cluster
    b1 resigns        Release of its newest demand, or of cause=
    b1 stops          LeaveGroup for itself; member=M: of another
    b1 deleted T/P    ReplicasDeleted; error=
    ops create T=1,2,3;2,3,1   CreateTopics with an assignment; T=6x3: partitions x replicas;
                      unclean=1
    ops extend T=N    CreatePartitions
    ops drop T…       DeleteTopics
    ops elect preferred|unclean [T/P…]
    ops move T/P=1,2  AlterPartitionReassignments; T/P= alone: cancel
    ops forget N      UnregisterBroker
    ops metadata [T…]
    ops inspect       DescribeGroup of the cluster
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from coordlib.core.wire import api
from tests.tools import clusters as c
from tests.tools.driving import Conversation

Words = list[str]
_SETTINGS: Final = {"session": "session_timeout_ms", "release": "release_timeout_ms"}
_NUMBERS: Final = frozenset({"session", "release", "previous", "version", "reply"})


class BrokerWords:
    """Requests by the words of a transcript, as those who say them know the cluster."""

    def __init__(self, talk: Callable[[], Conversation]) -> None:
        self._talk = talk

    def numbered(self, client: str, verb: str, words: Words, number: int) -> api.AnyRequest:
        """The same, with an id that counts up unless it is named."""
        made = self.request(client, verb, words)
        is_named = any(word.startswith("id=") for word in words)
        return made if is_named else c.with_fields(made, id=f"{client}.{number}")

    def request(self, client: str, verb: str, words: Words) -> api.AnyRequest:
        """The request of one command."""
        plain = [word for word in words if "=" not in word]
        fields = {k: v for k, _, v in (word.partition("=") for word in words if "=" in word)}
        made: api.AnyRequest = getattr(self, f"_{VERBS[verb]}")(client, plain, fields)
        return made

    def _broker(self, client: str, fields: dict[str, str]) -> int:
        return int(fields.pop("broker", client.lstrip("b").split("-")[0]))

    def _known(self, client: str, fields: dict[str, str]) -> tuple[int, int, int]:
        number = self._broker(client, fields)
        known = self._cluster().get(number)
        incarnation = int(fields.pop("incarnation", known.incarnation if known else 0))
        return number, incarnation, int(fields.pop("since", known.since if known else 0))

    def _cluster(self) -> Mapping[int, Any]:
        shard = self._talk().shard
        has = ("cluster", "g") in shard.rows
        return c.cluster_of(shard).brokers if has else {}

    def _rows(self) -> Mapping[tuple[str, int], Any]:
        return c.partitions_of(self._talk().shard) if self._cluster() else {}

    def _register(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        number = self._broker(client, fields)
        typed = {_SETTINGS.get(k, k): int(v) if k in _NUMBERS else v for k, v in fields.items()}
        return c.register(number, **{"client": client, "storage": f"disk-{number}", **typed})

    def _target(self, client: str, plain: Words, fields: dict[str, str]) -> Any:
        number, incarnation, since = self._known(client, fields)
        asked: dict[str, Any] = {"client": client, **fields}
        return c.beat(number, incarnation, since, plain[0], **asked)

    def _isr(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        number, incarnation, _since = self._known(client, fields)
        epoch, counted = fields.pop("epoch", ""), fields.pop("partition_epoch", "")
        rows = {
            _place(name): self._wanted(_place(name), isr, epoch, counted)
            for name, isr in fields.items()
            if "/" in name
        }
        rest = {k: v for k, v in fields.items() if "/" not in k}
        recovered = bool(rest.pop("recovered", ""))
        return c.alter(number, incarnation, rows, recovered, **{"client": client, **rest})

    def _wanted(self, place: tuple[str, int], text: str, epoch: str, counted: str) -> Any:
        """Leader epoch, partition epoch and ISR of one row."""
        own_epoch, _, isr = text.rpartition(":")
        row = self._rows().get(place)
        leader_epoch = int(own_epoch or epoch or (row.leader_epoch if row else 0))
        partition_epoch = int(counted or (row.partition_epoch if row else 0))
        members = tuple(self._member(each) for each in isr.split(",") if each)
        return leader_epoch, partition_epoch, members

    def _member(self, text: str) -> tuple[int, int]:
        number, _, incarnation = text.partition("@")
        known = self._cluster().get(int(number))
        return int(number), int(incarnation or (known.incarnation if known else 0))

    def _lives(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        return c.lives(client, fields.pop("member", self._member_id(client)), **fields)

    def _member_id(self, client: str) -> str:
        known = self._cluster().get(self._broker(client, {})) if client.startswith("b") else None
        return known.member if known else "nobody"

    def _resigns(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        known = self._cluster().get(self._broker(client, fields))
        demand = known.demand.timer.cause if known and known.demand else 0
        cause = int(fields.pop("cause", demand))
        return c.lets_go(client, fields.pop("member", self._member_id(client)), cause, **fields)

    def _leaves(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        return c.leaves(client, fields.pop("member", self._member_id(client)), **fields)

    def _deleted(self, client: str, plain: Words, fields: dict[str, str]) -> Any:
        number, incarnation, _since = self._known(client, fields)
        error = fields.pop("error", "NONE")
        rows = self._rows()
        told = [
            api.DeletedReplica(
                topic=topic,
                partition=partition,
                topic_id=rows[topic, partition].topic_id if (topic, partition) in rows else 0,
                error=error,  # type: ignore[arg-type]
            )
            for topic, partition in map(_place, plain)
        ]
        return c.deleted(number, incarnation, *told, **{"client": client, **fields})

    def _create(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        unclean = bool(fields.pop("unclean", ""))
        topics = []
        for name, text in fields.items():
            count, is_count, replicas = text.partition("x")
            if is_count:
                topics.append(c.new_topic(name, int(count), int(replicas), unclean=unclean))
            else:
                given = [_numbers(each) for each in text.split(";")]
                topics.append(c.new_topic(name, assignment=given, unclean=unclean))
        return c.create(*topics, client=client)

    def _extend(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        ((topic, count),) = fields.items()
        return c.about(api.CreatePartitions, client=client, topic=topic, count=int(count))

    def _drop(self, client: str, plain: Words, _: dict[str, str]) -> Any:
        return c.about(api.DeleteTopics, client=client, topics=tuple(plain))

    def _elect(self, client: str, plain: Words, _: dict[str, str]) -> Any:
        return c.elect(plain[0], *map(_place, plain[1:]), client=client)

    def _move(self, client: str, _: Words, fields: dict[str, str]) -> Any:
        ((place, text),) = fields.items()
        return c.move(_place(place), _numbers(text) if text else None, client=client)

    def _forget(self, client: str, plain: Words, _: dict[str, str]) -> Any:
        return c.about(api.UnregisterBroker, client=client, broker=int(plain[0]))

    def _metadata(self, client: str, plain: Words, _: dict[str, str]) -> Any:
        return c.about(api.Metadata, client=client, topics=tuple(plain) or None)

    def _inspect(self, client: str, _: Words, __: dict[str, str]) -> Any:
        return c.about(api.DescribeGroup, client=client, space="cluster")


#: Word -> the method that makes its request, without the underscore.
VERBS: Final = {
    "register": "register",
    "wants": "target",
    "isr": "isr",
    "lives": "lives",
    "resigns": "resigns",
    "stops": "leaves",
    "deleted": "deleted",
    "create": "create",
    "extend": "extend",
    "drop": "drop",
    "elect": "elect",
    "move": "move",
    "forget": "forget",
    "metadata": "metadata",
    "inspect": "inspect",
}


def _place(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("/")
    return topic, int(partition)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))
