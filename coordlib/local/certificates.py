"""A certificate authority for one local stack, made by Java's keytool, which is wherever Java is.

ca.p12       the authority: its key never leaves this folder
broker.p12   the broker's key and certificate, for 127.0.0.1 and localhost
ca.pem       the authority's certificate: what clients are to trust
store-password   of both stores; read by keytool from the file, so that no process list shows it
"""

import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from coordlib.errors import SetupError
from coordlib.local.java import find_java
from coordlib.local.private_files import write_private
from coordlib.local.stack_folder import PRIVATE_UMASK

#: Ten years: a stack on a laptop is wiped before.
VALID_DAYS: Final = 3_650
#: The broker's principal where it shows its certificate: to itself, as its own controller.
BROKER_NAME: Final = "CN=coord-broker"

_CA_STORE, _BROKER_STORE, _CA_PEM = "ca.p12", "broker.p12", "ca.pem"
_PASSWORD: Final = "store-password"
#: keytool lives for a moment: no time for a second compiler.
_JVM: Final = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Xshare:auto")
_KEY: Final = ("-keyalg", "EC", "-groupname", "secp256r1")


class Certificates:
    """The authority and the certificates of one folder, which only this user can enter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca_pem, self.broker_store = folder / _CA_PEM, folder / _BROKER_STORE

    @property
    def store_password(self) -> str:
        """Of the broker's store."""
        return (self._folder / _PASSWORD).read_text()

    def make(self) -> None:
        """Make what is missing: some seconds at the first time.

        Raises:
            SetupError: there is no keytool beside Java, or it fails.
        """
        if self.ca_pem.exists():  # the last of the files
            return
        for name in (_CA_STORE, _BROKER_STORE):
            (self._folder / name).unlink(missing_ok=True)
        write_private(self._folder / _PASSWORD, secrets.token_urlsafe(24))
        self._make_authority()
        self.issue("broker", self.broker_store)
        text = self._keytool("-exportcert", "-rfc", *self._store(_CA_STORE), "-alias", "ca")
        write_private(self.ca_pem, text)

    def _make_authority(self) -> None:
        self._keytool(
            *("-genkeypair", *self._store(_CA_STORE), "-alias", "ca", *_KEY),
            *("-dname", "CN=coordlib local authority", "-validity", str(VALID_DAYS)),
            *("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign,cRLSign"),
        )

    def issue(
        self, alias: str, store: Path, start: Sequence[str] = (), days: int = VALID_DAYS
    ) -> None:
        """A store with a key and a certificate for this machine, signed by the authority.

        Args:
            start: keytool's option for another beginning than now.
        """
        self._keytool(
            *("-genkeypair", *self._store(_CA_STORE), "-alias", alias, "-signer", "ca", *_KEY),
            *("-dname", BROKER_NAME, "-validity", str(days), *start),
            *("-ext", "san=ip:127.0.0.1,dns:localhost"),
            *("-ext", "eku=serverAuth,clientAuth"),
        )
        password = str(self._folder / _PASSWORD)
        self._keytool(
            *("-importkeystore", "-noprompt", "-srcalias", alias),
            *("-srckeystore", str(self._folder / _CA_STORE), "-srcstorepass:file", password),
            *("-destkeystore", str(store), "-deststoretype", "PKCS12"),
            *("-deststorepass:file", password),
        )

    def _store(self, name: str) -> tuple[str, ...]:
        password = str(self._folder / _PASSWORD)
        return (
            "-keystore",
            str(self._folder / name),
            "-storetype",
            "PKCS12",
            "-storepass:file",
            password,
        )

    def _keytool(self, *arguments: str) -> str:
        keytool = find_java().path.with_name("keytool")
        if not keytool.exists():
            keytool = find_java().path.resolve().with_name("keytool")
        try:
            answer = subprocess.run(
                [str(keytool), *_JVM, *arguments],
                capture_output=True,
                text=True,
                check=False,
                umask=PRIVATE_UMASK,
            )
        except OSError as problem:
            raise SetupError(
                "Java's keytool cannot be started: it makes the certificates.",
                f"{keytool}: {problem.strerror}",
                "Install a whole Java runtime, or set JAVA_HOME to one.",
            ) from problem
        if answer.returncode != 0:
            raise SetupError(
                "Java's keytool has failed: no certificate was made.",
                (answer.stdout + answer.stderr).strip()[-1_000:],
                f"Check that {self._folder} can be written.",
            )
        return answer.stdout
