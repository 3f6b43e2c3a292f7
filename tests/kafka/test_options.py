"""One set of options for two clients; secrets come from the environment and are not shown."""

from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.kafka.options import KafkaOptions


def test_scram_over_tls_is_translated_for_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    monkeypatch.setenv("KAFKA_SECRET", 'p"a\\s')
    options = KafkaOptions.parse(
        [
            *("security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512"),
            *("sasl.username=alice", "sasl.password=${ENV:KAFKA_SECRET}", f"ssl.ca.location={ca}"),
        ]
    )
    assert options.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'p"a\\s',
        "ssl.ca.location": str(ca),
    }
    assert options.spark() == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="alice" password="p\\"a\\\\s";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\n",
    }
    assert options.redacted()["sasl.password"] == "***"
    assert 'p"a' not in repr(options)


def test_plain_login_and_client_certificate(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text(name)
    options = KafkaOptions.parse(
        [
            *("sasl.mechanisms=PLAIN", "sasl.username=a", "sasl.password=b"),
            f"ssl.certificate.location={tmp_path / 'cert.pem'}",
            f"ssl.key.location={tmp_path / 'key.pem'}",
        ]
    )
    spark = options.spark()
    assert "plain.PlainLoginModule" in spark["kafka.sasl.jaas.config"]
    assert spark["kafka.ssl.keystore.certificate.chain"] == "cert.pem"
    assert spark["kafka.ssl.keystore.key"] == "key.pem"
    assert spark["kafka.ssl.keystore.type"] == "PEM"


def test_arguments_win_over_the_table_however_its_keys_are_written() -> None:
    """TOML reads `security.protocol = "SSL"` as a table in a table, if the key is not quoted."""
    table = {"security": {"protocol": "SSL"}, "client.id": "job", "enable.x": True}
    options = KafkaOptions.parse(["kafka.security.protocol=PLAINTEXT"], table)
    assert options.librdkafka() == {
        "security.protocol": "PLAINTEXT",
        "client.id": "job",
        "enable.x": "true",
    }


def test_each_client_gets_only_what_it_knows() -> None:
    options = KafkaOptions.parse(
        ["debug=broker", "ssl.truststore.location=/t", "some.new.option=1"]
    )
    assert options.librdkafka() == {"debug": "broker", "some.new.option": "1"}
    assert options.spark() == {"kafka.ssl.truststore.location": "/t", "kafka.some.new.option": "1"}


@pytest.mark.parametrize(
    ("argument", "what"),
    [
        ("sasl.password", "has the form key=value"),
        ("bootstrap.servers=b:9092", "not one of the Kafka options"),
        ("sasl.password=${ENV:COORD_NOT_SET}", "COORD_NOT_SET is not set"),
    ],
)
def test_unusable_option_is_refused_with_the_mend(argument: str, what: str) -> None:
    with pytest.raises(SetupError, match=what) as error:
        KafkaOptions.parse([argument])
    assert error.value.mend


def test_unreadable_certificate_is_told_by_its_option() -> None:
    options = KafkaOptions.parse(["ssl.ca.location=/does/not/exist.pem"])
    with pytest.raises(SetupError, match=r"ssl\.ca\.location cannot be read"):
        options.spark()
