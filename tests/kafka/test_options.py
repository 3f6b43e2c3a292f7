"""One set of options for two clients; secrets come from the environment and are not shown."""

from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.kafka.options import KafkaOptions, read_options


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
def test_unusable_option_is_refused_with_the_hint(argument: str, what: str) -> None:
    with pytest.raises(SetupError, match=what) as error:
        KafkaOptions.parse([argument])
    assert error.value.hint


def test_unreadable_certificate_is_told_by_its_option() -> None:
    options = KafkaOptions.parse(["ssl.ca.location=/does/not/exist.pem"])
    with pytest.raises(SetupError, match=r"ssl\.ca\.location cannot be read"):
        options.spark()


def test_a_file_has_the_options_of_a_program(tmp_path: Path) -> None:
    """Passwords must not be arguments, which everybody on the machine can read."""
    file = tmp_path / "alice.properties"
    file.write_text("# mine\n\nbootstrap.servers=b:1\nkafka.sasl.password = a=b#c \nx.y=1\n")

    assert read_options(file) == {
        "bootstrap.servers": "b:1",
        "sasl.password": "a=b#c",
        "x.y": "1",
    }
    options = KafkaOptions.parse(["x.y=2"], {"x": {"y": 3, "z": 4}}, file)
    assert options.librdkafka() == {"sasl.password": "a=b#c", "x.y": "2", "x.z": "4"}
    assert "a=b#c" not in repr(options)


def test_a_file_may_refer_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_OF_ALICE", "hunter2")
    file = tmp_path / "alice.properties"
    file.write_text("sasl.password=${ENV:PASSWORD_OF_ALICE}\n")

    assert read_options(file) == {"sasl.password": "hunter2"}


@pytest.mark.parametrize("content", [None, b"hunter2\n", b"=hunter2\n", b"\xff\xfe", b"a=1\nx"])
def test_a_file_that_is_none_is_told_and_not_shown(tmp_path: Path, content: bytes | None) -> None:
    """A line without a key may be a password that was written alone."""
    file = tmp_path / "alice.properties"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(SetupError) as refused:
        KafkaOptions.parse(file=file)
    assert str(file) in refused.value.where
    assert "hunter2" not in str(refused.value)


def test_a_transactional_id_is_refused(tmp_path: Path) -> None:
    """A producer's file of options, given to the job: each of the job's producers would have had
    the id, and those that begin no transaction write nothing."""
    file = tmp_path / "kafka"
    file.write_text("transactional.id=copier-1\n")
    for given in ({"arguments": ["transactional.id=x"]}, {"file": file}):
        with pytest.raises(SetupError, match="producer's key"):
            KafkaOptions.parse(**given)
