"""Each request, its answer and its checks stand in one file, and all of these are read."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from coordlib.core import wire as records
from coordlib.core.registry import REGISTRY
from coordlib.core.wire import api, codec
from coordlib.core.wire.envelope import Refusal, RequestReader
from coordlib.core.wire.transactions import ProducerResponse
from tests.tools import driving

MODULES = [
    importlib.import_module(f"coordlib.core.wire.{each.name}")
    for each in pkgutil.iter_modules(records.__path__)
]
#: Base types of requests and responses, which are not sent themselves.
ENVELOPES = {
    *(api.Request, api.ClusterRequest, api.ProducerRequest, api.TransactionRequest, api.InAnySpace),
    *(api.Control, api.Response, ProducerResponse, api.Message),
}


def tagged() -> Iterator[type[Any]]:
    """All types with a tag that a file of the package defines."""
    for module in MODULES:
        for each in vars(module).values():
            is_struct = isinstance(each, type) and issubclass(each, msgspec.Struct)
            if is_struct and each.__module__ == module.__name__ and each.__struct_config__.tag:
                yield each


def test_every_type_of_a_record_file_is_read() -> None:
    """A type that the unions forget is refused as of a version that nobody knows."""
    named = {*api.AnyRequest.__args__, *api.AnyResponse.__args__}

    messages = {each for kind in REGISTRY.kinds.values() for each in kind.MESSAGES}
    assert {*tagged()} - ENVELOPES == named | messages


@pytest.mark.parametrize(
    "request_type", [each for each in api.AnyRequest.__args__ if issubclass(each, api.Request)]
)
def test_a_request_stands_beside_its_answer(request_type: type[api.Request]) -> None:
    """Who changes one of them finds the other, and the check, without a search."""
    assert api.answer_to(request_type).__module__ == request_type.__module__


def test_a_bad_request_can_be_built_and_sent() -> None:
    """A client of another make sends it; tests and tools must be able to do the same."""
    request = driving.commit("a", offsets=(api.CommittedOffset("t", 0, 1),) * 2)

    refused = codec.decode_request(codec.encode(request))

    assert request.fault() == "offsets names one partition twice: name each once."
    assert isinstance(refused, Refusal)
    assert (refused.message, refused.id) == (request.fault(), request.id)


class Even(api.Request, tag="Even", frozen=True, kw_only=True):
    number: int

    def fault(self) -> str | None:
        return "number must be even." if self.number % 2 else None


class EvenTick(api.Control, tag="EvenTick", frozen=True, kw_only=True):
    number: int

    def fault(self) -> str | None:
        return "number must be even." if self.number % 2 else None


@pytest.mark.parametrize("kind", [Even, EvenTick])
def test_a_new_type_brings_its_own_check(kind: type[Any]) -> None:
    """A protocol of its own adds a struct, and changes nothing in the codec."""
    read = RequestReader([Even, EvenTick]).read
    sender = {"id": "1", "client": "a", "group": "g"} if kind is Even else {}

    def reading(**fields: Any) -> Any:
        return read(json.dumps({"v": 1, "type": kind.__name__, **sender, **fields}).encode())

    assert reading(number=2) == kind(v=1, number=2, **sender)
    assert isinstance(reading(number=3), Refusal)
    assert reading(number=3).message == "number must be even."


@pytest.mark.parametrize("field", ["client", "id"])
def test_the_envelope_is_checked_before_the_rest(field: str) -> None:
    """An answer needs a sender that can be read; what else is wrong comes second."""
    bad = {"v": 1, "type": "Even", "id": "1", "client": "a", "group": "g", "number": 3}

    refused = RequestReader([Even]).read(json.dumps({**bad, field: "\n"}).encode())

    assert refused.message.startswith(f"{field} must have 1 to")
