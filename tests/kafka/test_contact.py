"""Why brokers do not answer: certificates and TLS, by endpoints that end after the handshake."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from coordlib.cli.main.main import main
from coordlib.errors import CannotReach, CoordError, SetupError
from coordlib.exit_codes import UNREACHABLE, USAGE
from coordlib.kafka.clients import unreachable, why_silent
from coordlib.local.secured import Certificates

pytestmark = pytest.mark.stack  # keytool: some seconds


class Endpoint:
    """A server that shakes hands by a certificate, or says nothing that TLS understands."""

    def __init__(self, certificate: Path | None) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._context: ssl.SSLContext | None = None
        #: What clients have sent where there is no TLS.
        self.heard = b""
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                self._context.wrap_socket(connection, server_side=True).close()
            else:
                self.heard += connection.recv(65_536)
                connection.sendall(b"\x00\x00\x00\x04nope")
        except OSError:
            pass  # the client did not like the certificate


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and the certificates `good.pem` and `expired.pem`."""
    folder = tmp_path_factory.mktemp("authority")
    certificates = Certificates(folder)
    certificates.make()
    certificates.issue("expired", folder / "expired.p12", ("-startdate", "-3d"), days=1)
    password = certificates.store_password.encode()
    for store, name in (("broker.p12", "good.pem"), ("expired.p12", "expired.pem")):
        _as_pem(folder / store, password, folder / name)
    return folder


def _as_pem(store: Path, password: bytes, pem: Path) -> None:
    key, certificate, others = pkcs12.load_key_and_certificates(store.read_bytes(), password)
    assert key is not None
    assert certificate is not None
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [each.public_bytes(Encoding.PEM) for each in (certificate, *others)]
    pem.write_bytes(b"".join([private, *chain]))


@pytest.fixture
def options(made: Path) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "hunter2hunter2",
        "ssl.ca.location": str(made / "ca.pem"),
    }


@pytest.fixture
def endpoint(request: pytest.FixtureRequest, made: Path) -> Iterator[Endpoint]:
    """One with the certificate of this name; None: without TLS."""
    certificate = made / request.param if request.param is not None else None
    with closing(Endpoint(certificate)) as serving:
        yield serving


def looked(endpoint: Endpoint, options: dict[str, str]) -> CoordError | None:
    return why_silent({**options, "bootstrap.servers": endpoint.address}, 2.0)


@pytest.mark.parametrize("endpoint", ["expired.pem"], indirect=True)
def test_an_expired_certificate_is_told(endpoint: Endpoint, options: dict[str, str]) -> None:
    """It expires at night, and all programs say that brokers do not answer."""
    found = looked(endpoint, options)

    assert isinstance(found, CannotReach)
    assert found.what == "The brokers' certificate has expired."
    assert endpoint.address in found.where


@pytest.mark.parametrize("endpoint", [None], indirect=True)
def test_brokers_that_drop_tls_get_no_password(endpoint: Endpoint, options: dict[str, str]) -> None:
    """A listener that lost its TLS must not be told the password in clear."""
    found = looked(endpoint, options)

    assert isinstance(found, CannotReach)
    assert "do not speak TLS" in found.what
    assert endpoint.heard
    assert b"hunter2" not in endpoint.heard
    assert b"alice" not in endpoint.heard


@pytest.mark.parametrize("endpoint", ["good.pem"], indirect=True)
def test_an_authority_that_is_not_trusted_is_told(
    endpoint: Endpoint, options: dict[str, str]
) -> None:
    del options["ssl.ca.location"]
    found = looked(endpoint, options)

    assert isinstance(found, SetupError)
    assert "not trusted" in found.what
    assert "ssl.ca.location" in found.hint


@pytest.mark.parametrize("endpoint", ["good.pem"], indirect=True)
def test_brokers_that_want_tls_are_told_apart(endpoint: Endpoint) -> None:
    found = looked(endpoint, {})

    assert isinstance(found, SetupError)
    assert found.what == "The brokers want TLS at this address."


@pytest.mark.parametrize("endpoint", ["good.pem"], indirect=True)
def test_what_is_no_matter_of_tls_is_not_made_one(
    endpoint: Endpoint, options: dict[str, str]
) -> None:
    """The handshake is good here, and the login never ends: nothing is known of it."""
    assert looked(endpoint, options) is None


def test_nobody_who_listens_is_found_out_at_once(options: dict[str, str]) -> None:
    silent = {**options, "bootstrap.servers": "127.0.0.1:1"}
    problem = KafkaException(KafkaError(KafkaError._TRANSPORT))
    found = unreachable(silent, "No Kafka broker answers.", problem, "Check.")

    assert isinstance(found, CannotReach)
    assert found.what == "No Kafka broker answers."


@pytest.mark.parametrize(
    ("endpoint", "code"), [("expired.pem", UNREACHABLE), (None, UNREACHABLE)], indirect=["endpoint"]
)
def test_a_command_ends_with_three_lines_and_a_code(
    endpoint: Endpoint,
    code: int,
    options: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "alice.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))

    assert main(["groups", "list", "-b", endpoint.address, "--kafka-file", str(file)]) == code

    told = capsys.readouterr().err
    assert len(told.splitlines()) == 3
    assert "hunter2" not in told


def test_a_file_without_the_authority_is_wrong_usage(
    options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options["ssl.ca.location"] = str(tmp_path / "nowhere.pem")
    file = tmp_path / "alice.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in options.items()))

    assert main(["groups", "list", "-b", "127.0.0.1:1", "--kafka-file", str(file)]) == USAGE
    assert "hunter2" not in capsys.readouterr().err
