"""What a prefix has recorded of topics and wire version, against the job that starts."""

from typing import Any

import msgspec
import pytest

from coordlib.core.wire.envelope import WIRE_VERSION
from coordlib.core.wire.stored import Layout
from coordlib.errors import StartRefused
from coordlib.job import start
from coordlib.job.main import coordinator
from coordlib.job.pipelines import groups
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.topics import Layout as Topics

PREFIX = "p"
IDS = {"p.requests": "abcdefghijkl", "p.groups": "mnopqrstuvwx", "p.progress": "yz"}
NOW = Layout(shards=2, reply_partitions=4, topic_ids=IDS)


class Progress:
    """The progress topic and the producer that writes it."""

    def __init__(self, recorded: object = None) -> None:
        self.newest: dict[bytes, bytes] = {}
        if recorded is not None:
            self.newest[b"layout"] = msgspec.json.encode(recorded)
        self.is_fenced, self.transactions = False, 0

    def init_transactions(self, timeout: float) -> None:
        self.is_fenced = True

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, value: bytes, key: bytes, *_: Any, **__: Any) -> None:
        assert topic == "p.progress"
        self.newest[key] = value

    def flush(self, timeout: float) -> None: ...

    def commit_transaction(self, timeout: float) -> None:
        self.transactions += 1

    def started(self, layout: Layout) -> Layout:
        """What is recorded when a job that finds these topics has started."""
        producer: Any = self
        sink = TransactionalSink(groups(PREFIX), lambda: producer, lambda *_: dict(self.newest))
        folder: Any = EmptyFolder()
        start.agree(sink, folder, layout, groups(PREFIX), lambda *_: {})
        return msgspec.json.decode(self.newest[b"layout"], type=Layout)


class EmptyFolder:
    """A checkpoint's folder that nobody has written to."""

    path = "folder"

    def identity(self) -> None:
        return None

    def has_batches(self) -> bool:
        return False

    def create(self, *arguments: Any) -> tuple[Any, ...]:
        return arguments


def changed(layout: Layout = NOW, **fields: Any) -> Layout:
    return msgspec.structs.replace(layout, **fields)


def refused(recorded: object, layout: Layout = NOW) -> StartRefused:
    """The refusal, which must neither fence the job that runs nor write anything."""
    progress = Progress(recorded)
    before = dict(progress.newest)
    with pytest.raises(StartRefused) as caught:
        progress.started(layout)
    assert progress.newest == before
    assert not progress.is_fenced
    return caught.value


def test_a_first_start_records_the_topics() -> None:
    assert Progress().started(NOW) == NOW


def test_an_upgrade_that_brings_topics_starts_and_records_them() -> None:
    """Else the only way to newer code would be a new prefix."""
    before = changed(topic_ids={"p.requests": IDS["p.requests"]})
    progress = Progress(before)

    assert progress.started(NOW) == NOW
    assert progress.transactions == 1


def test_the_next_start_after_an_upgrade_writes_nothing() -> None:
    progress = Progress(NOW)

    assert progress.started(NOW) == NOW
    assert progress.transactions == 0


def test_a_topic_that_was_made_anew_is_refused_by_name() -> None:
    """Its records are lost: a rebuild would find no groups."""
    anew = changed(topic_ids=IDS | {"p.groups": "another"})

    problem = refused(NOW, anew)

    assert "p.groups" in problem.what
    assert "created again" in problem.what
    assert "p.requests" not in problem.what
    assert "delete all topics" in problem.hint


def test_a_recorded_topic_that_is_not_there_is_refused_by_name() -> None:
    """Set back to code that does not know the topic, a job would leave it unread."""
    problem = refused(changed(topic_ids=IDS | {"p.clusters": "new"}))

    assert "p.clusters" in problem.what
    assert "newer code" in problem.hint


def test_new_topics_do_not_excuse_one_that_was_made_anew() -> None:
    before = changed(topic_ids={"p.requests": "other"})

    assert "p.requests" in refused(before).what


@pytest.mark.parametrize(
    ("field", "told"),
    [("shards", "2 shards, not 3"), ("reply_partitions", "4 response partitions, not 3")],
)
def test_other_partition_counts_are_refused_with_both_numbers(field: str, told: str) -> None:
    problem = refused(changed(**{field: 3}))

    assert told in problem.what
    assert "fixed" in problem.hint


def test_all_differences_are_named_at_once() -> None:
    """An operator who fixes one and starts again should not meet the next."""
    problem = refused(changed(shards=3, topic_ids=IDS | {"p.groups": "another"}))

    assert "shards" in problem.what
    assert "p.groups" in problem.what


def test_a_layout_of_newer_code_is_refused() -> None:
    problem = refused(changed(v=2))

    assert "version 2" in problem.what
    assert "newer code" in problem.hint


# -- the wire version: a client writes no newer requests than the job reads --------------------


@pytest.mark.parametrize("before", [WIRE_VERSION - 1, WIRE_VERSION + 1])
def test_a_start_records_the_wire_version_of_its_code(before: int) -> None:
    """INV-84: the job was upgraded, or set back."""
    assert Progress(changed(wire_version=before)).started(NOW) == NOW


def test_other_topics_are_refused_whatever_the_wire_version() -> None:
    """A change of the version must not hide that of the shards."""
    assert "2 shards, not 3" in refused(changed(shards=3, wire_version=0)).what


def test_the_job_names_the_wire_version_of_its_code() -> None:
    """Else no client would ever start."""
    assert coordinator._layout_of(Topics(PREFIX, 2, 4, IDS)) == NOW
    assert NOW.wire_version == WIRE_VERSION
