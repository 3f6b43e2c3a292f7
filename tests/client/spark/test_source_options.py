"""Options of `format("coord")`."""

from typing import Any

import pytest

from coordlib.client.spark.source_options import parse
from coordlib.errors import SetupError
from coordlib.kafka.options import KafkaOptions

GIVEN = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders", "group.id": "billing"}
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="ann" password="p\\"w=;1";'
)


def test_names_are_compared_without_case_and_defaults_are_sparks() -> None:
    options = parse({key.lower(): value for key, value in GIVEN.items()})

    assert (options.group, options.topics, options.otherwise) == ("billing", ("orders",), "latest")
    assert (options.is_strict, options.rows_max, options.prefix) == (True, None, "coord")
    assert parse(GIVEN | {"maxOffsetsPerTrigger": "5", "coord.prefix": "c"}).rows_max == 5
    assert parse({**GIVEN, "maxTriggerDelay": "15m"}).delay_max_ms == 900_000


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"group.id": ""}, "name of its group"),
        ({"kafka.bootstrap.servers": ""}, "no brokers"),
        ({"subscribePattern": "o.*"}, "one of subscribe and subscribePattern"),
        ({"subscribe": ""}, "No topic can have this name"),
        ({"subscribe": "^orders"}, "subscribe takes names"),
        ({"kafka.group.id": "orders"}, "name two groups"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset has no meaning"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit has no meaning"),
        ({"kafka.session.timeout.ms": "9000"}, "kafka.session.timeout.ms has no meaning"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer has no meaning"),
        ({"assign": '{"orders": [0]}'}, "assign has no meaning"),
        ({"startingtimestamp": "1"}, "startingTimestamp has no meaning"),
        ({"endingOffsets": "latest"}, "endingOffsets has no meaning"),
        ({"minPartitions": "8"}, "minPartitions has no meaning"),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, "startingOffsets is earliest or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is a whole number from 1"),
        ({"maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "4"}, "is above"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a time"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false"),
        ({"group.capacity": "0"}, "group.capacity is a whole number"),
        ({"maxOffsetPerTrigger": "5"}, "no such option"),
        ({"kafka.sasl.mechanismus": "PLAIN"}, "Kafka option is wrong"),
        ({"kafka.ssl.truststore.location": "/x.jks"}, "Only PEM stores"),
        ({"kafka.ssl.truststore.type": "JKS"}, "Only PEM stores"),
        ({"kafka.ssl.truststore.password": "x"}, "librdkafka has no such option"),
        ({"kafka.sasl.jaas.config": "com.sun.Krb5LoginModule required;"}, "login is not known"),
    ],
)
def test_what_a_group_cannot_use_is_refused_by_name(more: dict[str, str], reason: str) -> None:
    with pytest.raises(SetupError, match=reason):
        parse(GIVEN | more)


def test_an_empty_pattern_matches_nothing() -> None:
    given = {key: value for key, value in GIVEN.items() if key != "subscribe"}

    with pytest.raises(SetupError, match="matches nothing"):
        parse(given | {"subscribePattern": ""})


def test_a_query_needs_a_subscription() -> None:
    with pytest.raises(SetupError, match="neither"):
        parse({key: value for key, value in GIVEN.items() if key != "subscribe"})


def test_javas_security_becomes_librdkafkas_and_is_in_no_text() -> None:
    options = parse(
        GIVEN
        | {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": JAAS,
        }
    )

    assert options.data["sasl.username"] == "ann"
    assert options.data["sasl.password"] == 'p"w=;1'
    assert options.coordinator["sasl.password"] == 'p"w=;1'
    assert 'p"w' not in f"{options!r} {options}"


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "u\\", "sasl.password": 'a"b'},
        {"security.protocol": "SSL", "ssl.ca.pem": "CA", "ssl.key.pem": "KEY"},
        {"ssl.endpoint.identification.algorithm": "none"},
        {"fetch.min.bytes": "7"},
    ],
)
def test_options_come_back_from_java(options: dict[str, Any]) -> None:
    java = {key.removeprefix("kafka."): at for key, at in KafkaOptions(options).spark().items()}

    assert KafkaOptions.from_java(java).values == options
