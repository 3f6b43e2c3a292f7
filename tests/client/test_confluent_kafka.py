"""The page that compares the consumer with confluent-kafka's, against the installed library."""

import ctypes
import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

import coordlib
from coordlib.client.groups.consumer import CoordinatedConsumer
from coordlib.client.kit.data import open_reader
from coordlib.errors import CoordError, SetupError
from coordlib.kafka.options import PRODUCERS

PAGE = Path(__file__).parents[2] / "docs/reference/confluent-kafka.md"
#: What confluent-kafka has beside librdkafka's settings.
OF_PYTHON = {"on_commit", "oauth_cb", "logger"}
SAME, DIFFERS, REFUSED = "the same", "differs", "refused"
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


class Row(NamedTuple):
    here: str
    about: str


def rows(heading: str) -> dict[str, Row]:
    """One for each name in the first column of a table; a name stands there once."""
    part = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    found: dict[str, Row] = {}
    for first, here, about in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) ?\|$", part, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", first):
            assert name not in found, name
            found[name] = Row(here, about)
    return found


METHODS, SETTINGS = rows("Methods"), rows("Settings")


def settings_of_librdkafka() -> dict[str, str]:
    """Each setting of the installed library, with C, P or * for both, as it prints them itself."""
    folder = Path(confluent_kafka.__file__).parent
    (path,) = [
        *(folder.parent / "confluent_kafka.libs").glob("librdkafka*"),
        *(folder / ".dylibs").glob("librdkafka*"),
    ]
    library, c = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    c.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.NamedTemporaryFile() as file:
        stream = c.fopen(file.name.encode(), b"w")
        library.rd_kafka_conf_properties_show(stream)
        c.fclose(stream)
        text = Path(file.name).read_text()
    return dict(re.findall(r"^([\w.]+) +\|\s+([CP*])\s+\|", text, re.MULTILINE))


def methods_of_confluent() -> list[str]:
    return [name for name in dir(confluent_kafka.Consumer) if not name.startswith("__")]


def test_every_method_of_confluent_kafkas_consumer_has_a_row() -> None:
    """A new one is noticed: it is offered, or the page tells what to use."""
    assert len(METHODS) > 20
    assert sorted(METHODS) == sorted(methods_of_confluent())
    assert {row.here for row in METHODS.values()} == {SAME, DIFFERS, REFUSED}
    assert [name for name, row in METHODS.items() if row.here != SAME and not row.about] == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_the_arguments_that_confluent_kafka_documents(name: str) -> None:
    ours = inspect.signature(getattr(CoordinatedConsumer, name)).parameters
    doc = getattr(confluent_kafka.Consumer, name).__doc__ or ""
    documented = re.search(rf"py:function:: {name}\((.*)\)", doc)
    theirs = re.findall(r"(\w+)(?:=[^,\]]*)?", documented[1]) if documented else []

    assert [each for each in theirs if each not in ours] == []


def test_what_is_refused_says_what_to_use() -> None:
    refused = [name for name, row in METHODS.items() if row.here == REFUSED]
    consumer = CoordinatedConsumer.__new__(CoordinatedConsumer)

    assert refused == ["set_sasl_credentials"]
    with pytest.raises(CoordError, match="not offered") as told:
        consumer.set_sasl_credentials("user", "password")
    assert "oauth_cb" in told.value.hint


def test_every_setting_of_librdkafka_has_a_row() -> None:
    """A new one is noticed, and so is one that has gone."""
    of_library = settings_of_librdkafka()
    of_consumers = {name for name, kind in of_library.items() if kind in "C*"}

    assert len(of_consumers) > 100
    assert sorted(SETTINGS) == sorted(of_consumers | OF_PYTHON)
    assert {row.here for row in SETTINGS.values()} == {SAME, DIFFERS, REFUSED}
    assert [name for name, row in SETTINGS.items() if row.here != SAME and not row.about] == []


def test_settings_of_producers_are_known_as_such() -> None:
    """They go to no client that would warn of them or fail by them."""
    of_producers = {name for name, kind in settings_of_librdkafka().items() if kind == "P"}
    in_c = {"dr_cb", "dr_msg_cb", "partitioner_cb", "msg_order_cmp"}

    assert of_producers - in_c == PRODUCERS - {"on_delivery"}


@pytest.mark.parametrize("name", [name for name, row in SETTINGS.items() if row.here == REFUSED])
def test_a_setting_that_is_refused_is_refused(name: str) -> None:
    with pytest.raises(SetupError):
        open_reader({**NOWHERE, name: "x"})


@pytest.mark.parametrize(
    "config",
    [
        {"group.protocol": "consumer"},
        {"group.protocol": "assigned", "group.instance.id": "one"},
        {"group.protocol": "assigned", "partition.assignment.strategy": "range"},
        {"group.remote.assignor": "uniform"},
        {"session.timeout.ms": 9_000, "heartbeat.interval.ms": 4_000},
        {"transactional.id": "one"},
    ],
    ids=str,
)
def test_what_the_page_calls_refused_beside_another_setting_is_refused(config: Any) -> None:
    with pytest.raises(SetupError):
        CoordinatedConsumer({**NOWHERE, **config})


# ---- `from coordlib import Consumer` -----------------------------------------------------------


def test_the_clients_of_most_programs_are_offered_by_the_package() -> None:
    from coordlib import AsyncConsumer, Consumer, Producer, client

    assert (Consumer, Producer) == (client.CoordinatedConsumer, client.CoordinatedProducer)
    assert AsyncConsumer is client.AsyncConsumer
    assert {"AsyncConsumer", "Consumer", "Producer"} <= set(dir(coordlib))
    with pytest.raises(AttributeError, match="has no attribute 'Customer'"):
        coordlib.Customer  # noqa: B018
    stub = Path(coordlib.__file__).with_suffix(".pyi").read_text()
    assert re.findall(r" as (\w+)", stub) == coordlib.__all__


@pytest.mark.parametrize(
    "module", ["coordlib", "coordlib.core.registry", "coordlib.core.wire.api", "coordlib.limits"]
)
def test_what_needs_no_kafka_client_loads_none(module: str) -> None:
    """In a process of its own: here everything is loaded already."""
    code = (
        f"import sys, {module}\n"
        "print([m for m in sys.modules if m.startswith(('confluent_kafka', 'coordlib.client'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
