"""`coord topics check` where topics of claims may not be seen by whoever checks those of groups."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from coordlib.cli.kit.where import Where
from coordlib.cli.main.main import main
from coordlib.exit_codes import OK, USAGE
from coordlib.kafka import coordination, topics
from coordlib.kafka.clients import missing, reading

WHERE = ("--bootstrap-servers", "127.0.0.1:1", "--prefix", "coord")
GOOD = topics.Checked(topics.Layout("coord", 2, 16, {"coord.requests": "id-of-them"}), ())


@pytest.fixture(autouse=True)
def _groups_are_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Where, "reach", lambda *_: {})
    monkeypatch.setattr(topics, "check", lambda *_: GOOD)


def refuse(topic: str) -> Any:
    def refused(conf: Mapping[str, Any], *_: Any) -> Any:
        raise missing(reading(topic), conf)

    return refused


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main(["topics", "check", *words, *WHERE, "--format", "json"])
    told = capsys.readouterr()
    return code, json.loads(told.out), told.err


@pytest.mark.parametrize("is_known", [True, False])
def test_topics_of_groups_are_checked_where_those_of_claims_are_hidden(
    is_known: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a locked cluster the check of groups ended with a right on somebody else's topic."""
    followed = "__marshal" if is_known else None
    hidden = followed or "coord.claims.progress"
    monkeypatch.setattr(
        coordination, "followed", (lambda *_: followed) if followed else refuse(hidden)
    )
    monkeypatch.setattr(coordination, "check", refuse(hidden))
    code, answer, err = check(capsys)

    assert (code, answer["ok"], answer["shards"]) == (OK, True, 2)
    (finding,) = answer["findings"]
    assert (finding["topic"], finding["is_fatal"]) == (followed or "topics of claims", False)
    assert f"A right is missing: Read on the topic {hidden}" in finding["what"]
    assert "coord acl apply" in finding["hint"]
    assert "Topics of coord are good" in err


def test_claims_that_are_asked_for_must_be_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coordination, "check", refuse("__marshal"))
    code, answer, _ = check(capsys, "--claims", "__marshal")

    assert code == USAGE
    assert "Read on the topic __marshal" in answer["error"]["what"]
