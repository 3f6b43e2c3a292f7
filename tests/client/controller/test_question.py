"""The picture of a cluster that is too large for one answer: the broker works, and has its own."""

import logging
from typing import Any

import pytest

from coordlib.client.controller import requests as bs
from coordlib.client.controller.requests import BrokerFenced, MetadataRefused
from coordlib.client.kit import events as sg
from coordlib.client.kit.events import TopicPartition
from coordlib.core.wire import api
from tests.client.controller.play import ENDPOINT, MEMBER, T0, Play, row

TOO_LARGE = {"error": "INVALID_REQUEST", "message": "more than 16 MiB"}
OTHER = api.BrokerRow(8, 41, "Active", (ENDPOINT,), None)


def of_topic(name: str, **fields: Any) -> api.ReplicaRow:
    return api.ReplicaRow(name, 0, 30, 7, 0, 0, 55, (7, 8), (7, 8), **fields)


def registered(*rows: api.ReplicaRow) -> Play:
    """An Active broker with these replicas, whose question is not answered yet."""
    play = Play()
    play.say(sg.ReadToEnd(0, 0))
    play.say(bs.Begin(0))
    play.written(0, api.RegisterBroker)
    fields = {"broker": 7, "incarnation": 40, "member": MEMBER, "current_state": "Inactive"}
    fields |= {"since": 40, "generation": 1, "partitions": rows, "part": 0, "parts": 1}
    play.answer(0, api.RegisterBroker, api.RegisterBrokerResponse, **fields)
    play.say(bs.Ready(0))
    play.offset = 59
    play.written(0, api.BrokerHeartbeat)
    play.told(0, "Active", 60)
    return play


def answered(play: Play, **fields: Any) -> None:
    """The newest question about metadata is answered."""
    play.answer(0, api.Metadata, api.MetadataResponse, **fields)


def picture(*names: str) -> dict[str, Any]:
    return {
        "generation": 1,
        "brokers": (OTHER,),
        "topics": tuple(api.TopicRow(name, 30, 1, 1, False, False) for name in names),
        "partitions": tuple(map(of_topic, names)),
        "parts": 1,
    }


@pytest.mark.parametrize("error", ["INVALID_REQUEST", "POLICY_VIOLATION"])
def test_a_broker_of_a_very_large_cluster_leads_and_has_the_topics_of_its_own_replicas(
    caplog: pytest.LogCaptureFixture, error: str
) -> None:
    """More than some 90,000 partitions: no answer has room for all of them, or the job for that
    answer, and to change an ISR a leader needs the incarnations of the others."""
    play = registered(of_topic("t"), of_topic("u"))
    with caplog.at_level(logging.WARNING, "coordlib.client"):
        answered(play, **{**TOO_LARGE, "error": error})
    assert play.newest(api.Metadata).topics == ("t", "u")
    with pytest.raises(BrokerFenced, match="not read yet"):
        play.broker.metadata(0)
    answered(play, **picture("t", "u"))
    play.polled(0)

    shown = play.broker.metadata(0)
    assert not shown.is_whole
    assert (list(shown.topics), list(shown.brokers)) == (["t", "u"], [8])
    assert play.broker.may_lead(0, T0)
    play.say(bs.AlterIsr(0, 1, T0, {8: shown.brokers[8].incarnation}))
    assert play.newest(api.AlterPartition).topics[0].partitions[0].isr[1].incarnation == 41
    (line,) = caplog.messages
    assert "Admin.metadata" in line


def test_topics_are_asked_for_some_at_a_time_and_single_ones_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker may have replicas of all topics, and one topic alone may be too large."""
    names = [f"t{n:04}" for n in range(700)]
    play = registered(*map(of_topic, names))
    answered(play, **TOO_LARGE)
    asked: list[tuple[str, ...]] = []
    while not asked or asked[-1] != play.newest(api.Metadata).topics:
        asked.append(play.newest(api.Metadata).topics)
        if {"t0003", "t0600"} & set(asked[-1]):
            answered(play, **TOO_LARGE)
        else:
            answered(play, **picture(*asked[-1]))

    assert len(asked[0]) == 500
    assert ("t0003",) in asked
    shown = play.broker.metadata(0)
    assert sorted(shown.topics) == sorted({*names} - {"t0003", "t0600"})
    assert len(caplog.messages) == 2
    assert "t0003, t0600" in caplog.messages[1]


def test_what_has_changed_since_is_in_a_picture_of_some_topics() -> None:
    """Notices tell of all topics; those between two answers count as those after them."""
    names = [f"t{n:04}" for n in range(501)]
    play = registered(*map(of_topic, names))
    answered(play, **TOO_LARGE)
    answered(play, **picture(*names[:500]))
    gone = api.TopicRow("t0000", -1, 0, 1, False, True)
    notice = api.MetadataChanged(
        group="shop",
        cause="r1-70",
        generation=1,
        topics=(gone,),
        partitions=(of_topic("v"), api.ReplicaRow("t0000", 0, 30, -1, 0, 0, 55, (), ())),
    )
    play.say(sg.Received(0, notice))
    answered(play, **picture(names[500]))

    shown = play.broker.metadata(0)
    assert sorted(shown.topics) == names[1:]
    assert TopicPartition("v", 0) in shown.partitions
    assert TopicPartition("t0000", 0) not in shown.partitions


def test_a_refusal_for_good_has_a_name_and_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`poll on, try again` would be for ever; the broker leads and follows all the same."""
    play = registered(row(0))
    answered(play, error="GROUP_AUTHORIZATION_FAILED", message="no")
    play.polled(0)

    with pytest.raises(MetadataRefused, match=r"Admin\.metadata"):
        play.broker.metadata(0)
    assert len(caplog.messages) == 1
    assert play.broker.may_lead(0, T0)
    assert play.broker.wake_ms() is not None


def test_a_new_registration_asks_for_all_again() -> None:
    """Topics may have been deleted meanwhile."""
    play = registered(of_topic("t"))
    answered(play, **TOO_LARGE)
    answered(play, **picture("t"))
    play.say(bs.Stop(0))
    play.answer(
        0, api.BrokerHeartbeat, api.BrokerHeartbeatResponse, error="BROKER_ID_NOT_REGISTERED"
    )
    play.written(0, api.RegisterBroker)
    fields = {"broker": 7, "incarnation": 90, "member": MEMBER, "current_state": "Inactive"}
    fields |= {"since": 90, "generation": 1, "partitions": (), "part": 0, "parts": 1}
    play.answer(0, api.RegisterBroker, api.RegisterBrokerResponse, **fields)
    assert play.newest(api.Metadata).topics is None
    answered(play, **picture("w"))
    play.say(bs.Ready(0))
    play.written(0, api.BrokerHeartbeat)
    play.told(0, "Active", 95)
    play.polled(0)

    shown = play.broker.metadata(0)
    assert shown.is_whole
    assert list(shown.topics) == ["w"]
