"""A slice of `make fuzz`, the corpus that it found, and that it would find what is broken."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordlib.core.claims.world import World
from coordlib.core.controller import isr
from coordlib.core.groups.classic.group import Step
from coordlib.core.groups.classic.protocol import CLASSIC
from coordlib.core.wire import api
from coordlib.core.wire import consumer_protocol as cp
from coordlib.errors import ErrorCode
from tests.tools.fuzz import brokers, claims, corpus, decoding, inputs, shards, transactions
from tests.tools.fuzz.targets import ACCEPTED, BY_NAME, TARGETS

CORPUS = corpus.read(Path(__file__).parent / "fuzz_corpus.jsonl")


def test_a_hundred_thousand_inputs_raise_nothing() -> None:
    """INV-40. Anybody who can reach the topics can write anything; `make fuzz` throws more."""
    outcome = decoding.fuzz(seed=1, count=100_000, corpus=CORPUS)

    assert outcome.raised == {}
    assert outcome.inputs == 100_000
    # Or it fuzzed too weakly: every wall must have let something through and refused much.
    assert outcome.accepted > 5_000
    assert {target for target, verdict in outcome.found if verdict.startswith(ACCEPTED)} == {
        target.name for target in TARGETS
    }
    assert all(
        outcome.refused[name] > 1_000
        for name in ("request INVALID_REQUEST", "request UNSUPPORTED_VERSION")
    )
    assert len(outcome.found) > 250


def test_a_shard_amid_mutated_requests_sets_no_group_aside() -> None:
    """INV-42: whatever can be decoded is judged, in every state of a group, and stored again."""
    folded = shards.fold(seed=1, count=6_000)

    assert folded.failures == []
    assert (folded.quarantined, folded.records >= 6_000) == (0, True)


def test_transactions_amid_mutated_requests_set_nothing_aside() -> None:
    """INV-42: pending offsets, ids and channels, where somebody decides and feeds who may not."""
    folded = transactions.fold(seed=1, count=3_000)

    assert folded.failures == []
    assert (folded.quarantined, folded.records >= 3_000) == (0, True)


def test_a_cluster_amid_mutated_requests_stays_sound() -> None:
    """INV-40, INV-42, INV-72 to INV-77, INV-79: brokers, operators, and somebody who writes odd
    things in their names."""
    folded = brokers.fold(seed=1, count=2_000)

    assert folded.failures == []
    assert folded.records >= 2_000


def test_a_cluster_that_lets_anybody_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blindness again: the leader's word is not asked for, nor who is a replica."""
    inputs.of_brokers()  # what is mutated comes from lives without the bug
    nothing_wrong = (ErrorCode.NONE, None)
    monkeypatch.setattr(isr, "_fault", lambda *_: nothing_wrong)

    assert brokers.fold(seed=1, count=2_000).failures


def test_streams_of_hostile_messages_break_no_promise_of_claims() -> None:
    """INV-40, INV-45: anybody may write to the coordination topic, and all readers agree."""
    folded = claims.fold(seed=1, count=3_000)

    assert folded.failures == []
    assert folded.records >= 3_000


def test_a_world_that_judges_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blindness again: a world that believes any epoch."""
    monkeypatch.setattr(World, "is_of_owner", lambda *_: True)

    assert claims.fold(seed=1, count=3_000).failures


@pytest.mark.parametrize(
    "target", [target.name for target in TARGETS if target.name != "user data"]
)
def test_the_corpus_is_judged_as_when_it_was_found(target: str) -> None:
    """An input of each kind: a library's new version must not let more in, or name it otherwise.

    If a difference is meant: python -m tests.tools.fuzz --inputs 100000 --write-corpus
    """
    found = [each for each in CORPUS if each.target == target]

    assert found
    assert [BY_NAME[target].wall(each.value) for each in found] == [each.verdict for each in found]


def test_the_same_seed_draws_the_same_inputs() -> None:
    """What a night's run found can be found again in the morning."""
    first, again = (decoding.fuzz(seed=5, count=2_000, corpus=[]) for _ in range(2))

    assert (first.found, first.refused) == (again.found, again.refused)


def test_a_decoder_that_raises_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fuzzer that finds nothing may be blind: here a reader forgets that bytes may end."""

    def careless(value: bytes) -> cp.Assignment:
        return cp.Assignment(version=value[0] * 256 + value[1])

    monkeypatch.setattr(cp, "decode_assignment", careless)

    outcome = decoding.fuzz(seed=1, count=5_000, corpus=[])

    ((where, (said, value)),) = outcome.raised.items()
    assert (where, said) == (("assignment", "IndexError"), "index out of range")
    assert len(decoding.minimised("assignment", value)) <= 1


def test_a_step_that_breaks_on_odd_values_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blindness again: handlers that cannot bear a topic, id or name of the greatest length."""

    def brittle(judge: Callable[[Step, Any], None], step: Step, request: api.Request) -> None:
        assert "x" * 249 not in str(request)
        judge(step, request)

    for kind, judge in CLASSIC.handlers.items():
        monkeypatch.setitem(CLASSIC.handlers, kind, partial(brittle, judge))

    folded = shards.fold(seed=1, count=6_000)

    assert folded.quarantined > 0
    assert folded.failures
