"""Outputs as short lines, for people: the notation of tests and transcripts.

    answer a#j1 JoinGroup generation=1 protocol=range leader=a-t-0-0 member=a-t-0-0 members=[…]
    answer a#h Heartbeat ILLEGAL_GENERATION
    notify RebalanceInProgress generation=1
    assign a-t-0-0 generation=1 protocol=range assignment=p0 fence=2        or: assign a-t-0-0 gone
    commit t/0 offset=5 generation=1 member=a-t-0-0                         or: commit t/0 gone
    pending r0-4 decided_by=kafka offsets=[…]                               or: pending r0-4 gone
    own t/0 client=a instance=0123abcd epoch=2 how=claimed                  or: own t/0 gone
    page 0                                                                  or: page 0 gone
    event RebalanceStarted generation=0 cause=r0-0 reason="member joined" detail…
    saved Stable generation=1        or: saved gone                         a batch ended
    broker 1 Active incarnation=3    or: broker 1 gone                      in coord.metadata
    topic t topic_id=7 partitions=1  or: topic t gone
    partition t/0 leader=1 …         or: partition t/0 gone
    saved cluster generation=4 brokers=3                                    a batch ended
    progress offset=7                                                       a batch ended

Partition 0 and group "g" are not written, others are: `answer@2`, `event[h]`. Fields at their
usual value (no error, empty text, null, 0, -1) and times are left out; bytes that are text stand as
text. Sentences for people (`message`) are left out, unless a request was rejected unread; so is the
reason of a refusal's event when it is the sentence of the error.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from coordlib.core.engine.effects import (
    ASSIGNMENTS,
    CLUSTERS,
    COMMITTED,
    EVENTS,
    GROUPS,
    METADATA,
    OUTBOX,
    RESPONSES,
    SNAPSHOTS,
    TRANSACTIONS,
    Output,
)
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode

_USUAL: Final[tuple[Any, ...]] = (None, "", 0, -1, [], {}, False)
_ENVELOPE: Final = frozenset({"v", "type", "id", "client", "group", "cause", "error", "message"})
_BYTES: Final = frozenset({"metadata", "assignment", "bytes"})
_ALWAYS: Final = frozenset({"offset", "shard", "epoch"})  # zero says something


def render(output: Output) -> str:
    """One output record as one line."""
    if output.topic == SNAPSHOTS:
        return _words("page", output.key.decode(), "gone" if output.value is None else "")
    value: Any = json.loads(output.value) if output.value is not None else None
    if output.topic == EVENTS:
        return _event(value)
    if output.topic == RESPONSES:
        return _response(output.partition, value)
    if output.topic in _OF_KEY:
        return _OF_KEY[output.topic](output.key.decode(), value)
    return _words(output.topic, output.key.decode(), "gone" if value is None else _fields(value))


def _saved(group: str, value: dict[str, Any] | None) -> str:
    if value is None:
        return "saved" + _group(group) + " gone"
    return _words("saved" + _group(group), value["state"], _only(value, "generation"))


def _assigned(key: str, value: dict[str, Any] | None) -> str:
    group, member, *partition = json.loads(key)
    shown = _entry(value, {"since_ms"})
    if partition:
        return _words("own" + _group(group), f"{member}/{partition[0]}", shown)
    return _words("assign" + _group(group), member, shown)


def _committed(key: str, value: dict[str, Any] | None) -> str:
    group, topic, partition = json.loads(key)
    shown = _entry(value, {"commit_ms", "commit_clock_ms"})
    return _words("commit" + _group(group), f"{topic}/{partition}", shown)


def _saved_cluster(key: str, value: dict[str, Any] | None) -> str:
    (cluster,) = json.loads(key)
    if value is None:
        return "saved cluster" + _group(cluster) + " gone"
    shown = f"generation={value['generation']} brokers={len(value['brokers'])}"
    return _words("saved cluster" + _group(cluster), shown)


def _of_cluster(key: str, value: dict[str, Any] | None) -> str:
    cluster, what, name, *number = json.loads(key)
    where = f"{name}/{number[0]}" if number else str(name)
    if value is not None and what == "broker":
        shown = f"{value['current_state']} incarnation={value['incarnation']}"
        return _words(what + _group(cluster), where, shown)
    return _words(what + _group(cluster), where, _entry(value, set()))


def _message(key: str, value: dict[str, Any] | None) -> str:
    where = "/".join(map(str, json.loads(key)))
    return _words("outbox", where, "gone" if value is None else json.dumps(value))


def _of_transaction(key: str, value: dict[str, Any] | None) -> str:
    what, name, *pending = json.loads(key)
    if pending:
        return _words(what + _group(name), pending[0], _entry(value, {"since_ms", "id"}))
    if value is None:
        return f"saved {what} {name} gone"
    return f"saved {what} {name} {value['state']} producer={value['producer_id']}-{value['epoch']}"


#: How a record of a compacted topic is shown, by its key and its value.
_OF_KEY: Final[dict[str, Callable[[str, Any], str]]] = {
    GROUPS: _saved,
    ASSIGNMENTS: _assigned,
    COMMITTED: _committed,
    CLUSTERS: _saved_cluster,
    METADATA: _of_cluster,
    OUTBOX: _message,
    TRANSACTIONS: _of_transaction,
}


def _response(partition: int, value: dict[str, Any]) -> str:
    where = f"@{partition}" if partition else ""
    if value["type"] == "Progress":
        return _words(f"progress{where}", _fields({"offset": value["offset"]}))
    group = _group(value.pop("transactional_id", "g") if "group" not in value else value["group"])
    rest = _fields({k: v for k, v in value.items() if k not in _ENVELOPE})
    if value["type"] == "LeadershipDemanded":
        rest = f"cause={value['cause']} {rest}"  # what the Release is to name
    if "id" not in value:
        return _words(f"notify{where}{group}", value["type"], rest)
    head = _words(f"answer{where}{group}", f"{value['client']}#{value['id']}", value["type"])
    error = "" if value["error"] == "NONE" else value["error"]
    if value["type"] == "Rejected":
        return _words(head, error, _quoted(value["message"]))
    return _words(head, error, rest)


def _event(value: dict[str, Any]) -> str:
    if value["reason"] == _sentence_of(value["detail"].get("error")):
        value = value | {"reason": ""}
    fields = _only(value, "generation", "member", "cause", "reason")
    detail = {k: v for k, v in value["detail"].items() if k != "exception"}
    return _words(f"event{_group(value['group'])}", value["type"], fields, _fields(detail))


def _sentence_of(error: str | None) -> str | None:
    known = ErrorCode.__members__.get(error or "")
    return known.what_to_do if known is not None else None


def _entry(value: dict[str, Any] | None, hidden: set[str]) -> str:
    if value is None:
        return "gone"
    return _fields({k: v for k, v in value.items() if k not in hidden})


def _group(name: str) -> str:
    return "" if name == "g" else f"[{name}]"


def _words(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _only(value: dict[str, Any], *names: str) -> str:
    return _fields({name: value[name] for name in names})


def _fields(value: dict[str, Any]) -> str:
    shown = {k: v for k, v in value.items() if k in _ALWAYS or v not in _USUAL or v is True}
    return " ".join(f"{name}={_shown(name, field)}" for name, field in shown.items())


def _shown(name: str, field: Any) -> str:
    if isinstance(field, list):
        return "[" + ", ".join(_shown(name, item) for item in field) + "]"
    if isinstance(field, dict):
        if "partition_epoch" in field:
            return _partition(field)
        if field.keys() >= {"member", "instance", "metadata"}:
            has = f"={_text(field['assignment'])}" if "assignment" in field else ""
            return f"{field['member']}:{_text(field['metadata'])}{has}"
        return "(" + _fields(field) + ")"
    if name in _BYTES:
        return _text(field)
    return _quoted(field) if isinstance(field, str) else str(field)


def _partition(row: dict[str, Any]) -> str:
    """A partition of a cluster: its place first, then what is not usual."""
    rest = {k: v for k, v in row.items() if k not in ("topic", "partition", "topic_id", "was")}
    was = f"was={row['was']}" if "was" in row else ""
    error = {} if row.get("error", "NONE") == "NONE" else {"error": rest.pop("error")}
    shown = {k: v for k, v in rest.items() if k not in ("error", "message")}
    return (
        "(" + _words(f"{row['topic']}/{row['partition']}", was, _fields({**error, **shown})) + ")"
    )


def _text(field: str) -> str:
    owned = _owned(field)
    if owned is not None:
        return owned
    try:
        text = base64.b64decode(field, validate=True).decode()
    except ValueError:  # no base64, or no text
        return _quoted(field)
    return _quoted(text) if text.isprintable() else f"base64:{field}"


def _owned(field: str) -> str | None:
    """An assignment in the layout of Kafka's consumers; None: it is not in that layout."""
    if not field:
        return None
    try:
        partitions = cp.decode_assignment(base64.b64decode(field, validate=True)).partitions
    except ValueError:
        return None
    return f"({_fields({topic: list(some) for topic, some in partitions.items()})})"


def _quoted(text: str) -> str:
    return text if text and " " not in text and '"' not in text else json.dumps(text)
