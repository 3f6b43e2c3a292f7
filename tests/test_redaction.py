"""What looks like a secret is shown nowhere, also when the command line is mistyped."""

import pytest

from coordlib.redaction import in_clear, name_alone, redacted, secrets_of, warning_of, without


@pytest.mark.parametrize(
    "given",
    [
        ["--kafka", "sasl.password=hush"],
        ["--kafka=sasl.password=hush"],
        ["-Xsasl.password=hush"],
        ["--kafka", "sasl.password", "hush"],
        ["--kafka", "sasl.password=", "hush"],
        ["--kafka", "sasl.password:hush"],
        ["--kafka", "sasl.password", "=hush"],
        ["--kafka", "SASL.PASSWORD = hush"],
        ["--kafka", 'sasl.jaas.config=x required password="hush";'],
        ["--kafka", "sasl.password hush"],
        ["--kafka=sasl.password hush"],
        ["-Xsasl.password hush"],
        ["--kafka sasl.password hush"],
        ["--kafka", " sasl.password  hush"],
        ["--kafka", 'sasl.password "hush"'],
        ["--kafka", "sasl.password,hush"],
        ["--kafka", "sasl.password->hush"],
        ["--kafka", "sasl.passwd=hush"],
        ["--set", "kafka.sasl.password hush"],
        ["--set", "kafka.sasl.password=[hush"],
        ["--api-token", "hush"],
        ["--tables", "s3://key:hush@host/tables"],
        ["--driver-java-options", "-Da=b -Djavax.net.ssl.trustStorePassword=hush -Dc=d"],
    ],
)
def test_no_way_of_writing_a_secret_shows_it(given: list[str]) -> None:
    command = ["groups", "list", *given, "more"]

    assert "hush" not in " ".join(redacted(command))
    assert redacted(command)[:2] == ["groups", "list"]
    message = f"Unused Tokens: {command[-2:]}; hush: no such property, {given[-1]}"
    assert "hush" not in without(message, secrets_of(command))


def test_a_submission_is_shown_without_secrets() -> None:
    shown = redacted(
        [
            *("--conf", "spark.hadoop.fs.s3a.secret.key=hush1", "--kafka", "sasl.password=hush2"),
            *("--driver-java-options", "-Da=b -Djavax.net.ssl.trustStorePassword=hush3 -Dc=d"),
            *("--api-token", "hush4", "--set", "session_timeout_ms=1000"),
        ]
    )
    assert "hush" not in " ".join(shown)
    assert shown[-1] == "session_timeout_ms=1000"


def test_what_is_no_secret_stays() -> None:
    """Else nobody could see what was wrong with a command."""
    command = ["sql", "select 1", "--set", "session_timeout_ms=1000", "--tables", "s3://b/tables"]

    assert redacted(command) == command
    assert secrets_of(command) == set()
    assert without("a message", {"a"}) == "*** message"
    assert without("alas", {"a"}) == "alas"


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("sasl.password", "sasl.password"),
        ("sasl.password hush", "sasl.password ***"),
        ("sasl.password:hush", "sasl.password ***"),
        ("sasl.passwordhush", "sasl.password ***"),
        ("security.protocol SSL", "security.protocol ***"),
        ("hush", "***"),
        ("=hush", "***"),
        ("", "***"),
        (" hush.Hush1", "***"),
    ],
)
def test_of_what_has_not_the_form_of_an_option_the_name_alone_is_shown(
    argument: str, shown: str
) -> None:
    """A blank in place of the `=` showed the password behind it."""
    assert name_alone(argument) == shown


def test_a_secret_of_the_environment_is_hidden_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's answer may repeat the value that the client has sent."""
    monkeypatch.setenv("PASSWORD_OF_ALICE", "hush")
    command = ["--kafka", "sasl.password=${ENV:PASSWORD_OF_ALICE}"]

    assert without("no such user: hush", secrets_of(command)) == "no such user: ***"


def test_secrets_in_clear_are_named() -> None:
    """Everybody on the machine sees them in the list of processes."""
    command = ["--kafka", "sasl.password=hush", "--kafka=ssl.key.pem=x", "-Xsasl.token=y"]
    assert in_clear(command) == {"sasl.password": "hush", "ssl.key.pem": "x", "sasl.token": "y"}

    fine = ["--kafka", "sasl.password=${ENV:PASSWORD}", "sql", "select 'password = x'", "--token"]
    assert in_clear(fine) == {}


def test_a_secret_of_spark_has_another_way() -> None:
    """Only options of Kafka clients are looked up in the environment."""
    assert "${ENV:NAME}" in warning_of("sasl.password")
    assert "--properties-file" in warning_of("spark.hadoop.fs.s3a.secret.key")


def test_a_long_argument_takes_no_time() -> None:
    """A query of 100 KB came to be pasted: a pattern that looks back costs it squared."""
    for text in ("x" * 100_000, "token" * 20_000, "password=" * 11_000, "a://b@" * 16_000):
        command = ["sql", text, "more"]
        redacted(command)
        without(text, secrets_of(command))
        in_clear(command)
