"""How clients are opened and asked."""

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from coordlib.kafka import clients

PLACE = TopicPartition("t", 0)
ASKED = {PLACE: OffsetSpec.latest()}  # type: ignore[no-untyped-call]


class Admin:
    """Answers where logs end at once, or when it is asked who leads."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self._answer: Future[Any] = Future()
        self.renewed: list[str] = []

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[Any, Any]:
        if self._at_once:
            self._answer.set_result(7)
        return dict.fromkeys(asked, self._answer)

    def list_topics(self, topic: str, timeout: float) -> None:
        self.renewed.append(topic)
        self._answer.set_result(7)


def asked(admin: Admin) -> Any:
    return clients.list_offsets(cast("AdminClient", admin), ASKED, 5)[PLACE].result(0)


def test_a_new_client_that_missed_who_leads_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked while it connected: one in eight members joined 4 s late."""
    monkeypatch.setattr(clients, "_USUAL_S", 0.01)
    admin = Admin(at_once=False)

    assert asked(admin) == 7
    assert admin.renewed == ["t"]


def test_an_answer_that_comes_at_once_costs_no_further_question() -> None:
    admin = Admin(at_once=True)

    assert asked(admin) == 7
    assert admin.renewed == []
