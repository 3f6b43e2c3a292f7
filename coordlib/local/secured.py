"""A local stack behind TLS, passwords and ACLs: certificates, users, the broker's settings."""

import json
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from coordlib.errors import SetupError
from coordlib.installation import conf_file
from coordlib.kafka.acls import grant
from coordlib.kafka.options import read_options
from coordlib.kafka.roles import Role, options_of, rights
from coordlib.local.home import write_private
from coordlib.local.java import find_java, property_value
from coordlib.local.stack_folder import PRIVATE, PRIVATE_UMASK

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


#: Who may do anything: makes topics and grants rights. The broker itself has a user of its own.
ADMIN: Final = "admin"
BROKER: Final = "broker"
MECHANISM: Final = "SCRAM-SHA-512"
_USERS: Final = (BROKER, ADMIN, *(str(role) for role in Role))
_PASSWORDS: Final = "passwords.json"


class Secured:
    """What makes the stack in this folder a secured one."""

    def __init__(self, stack: Path) -> None:
        self._secrets, self._clients = stack / "secrets", stack / "clients"
        self._certificates = Certificates(self._secrets)

    @property
    def is_made(self) -> bool:
        """Whether the stack was started with security before."""
        return (self._secrets / _PASSWORDS).exists()

    def make(self) -> None:
        """Draw passwords and make certificates, once. Raises SetupError: keytool fails."""
        for folder in (self._secrets, self._clients):
            folder.mkdir(mode=PRIVATE, exist_ok=True)
        self._certificates.make()
        if not self.is_made:
            drawn = {user: secrets.token_urlsafe(24) for user in _USERS}
            write_private(self._secrets / _PASSWORDS, json.dumps(drawn))

    def write_clients(self, bootstrap_servers: str) -> None:
        """A file for each user: how it connects."""
        for user, password in self._passwords.items():
            if user != BROKER:
                write_private(self.file_of(user), self._lines(bootstrap_servers, user, password))

    def _lines(self, bootstrap_servers: str, user: str, password: str) -> str:
        values = {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self._certificates.ca_pem),
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def file_of(self, user: str) -> Path:
        """The file with which a role, or the admin, connects."""
        return self._clients / f"{user}.properties"

    def options_of(self, user: str) -> dict[str, str]:
        """librdkafka's options of a role, or of the admin, with `bootstrap.servers`."""
        return read_options(self.file_of(user))

    def broker_lines(self, ports: Mapping[str, int]) -> str:
        """What is added to the broker's properties. It has secrets."""
        template = Template(conf_file("broker-secured.properties").read_text())
        return template.substitute(
            ports,
            broker_user=BROKER,
            broker_password=self._passwords[BROKER],
            broker_name=BROKER_NAME,
            broker_store=property_value(str(self._certificates.broker_store)),
            store_password=self._certificates.store_password,
            ca_pem=property_value(str(self._certificates.ca_pem)),
            admin_user=ADMIN,
        )

    def scram_arguments(self) -> str:
        """Of `kafka-storage format`, one in a line: as `@FILE` they are on no command line."""
        pairs = (
            ("--add-scram", f"{MECHANISM}=[name={user},password={password}]")
            for user, password in self._passwords.items()
        )
        return "".join(f"{word}\n" for pair in pairs for word in pair)

    def grant_roles(self, prefix: str, claims: str | None = None) -> None:
        """Give each role its rows of the table.

        Members and claimants get data topics and groups from a person. Those who only look may
        describe all of them.

        Args:
            claims: the coordination topic that the job follows; None: none.
        """
        admin = self.options_of(ADMIN)
        for role in Role:
            taken = options_of(role)
            is_looking = role in (Role.READER, Role.OPERATOR)
            topics = ["*"] if is_looking else []
            groups = ["*"] if is_looking and "--groups" in taken else []
            named = claims if "--claims" in taken else None
            grant(admin, f"User:{role}", rights(role, prefix, topics, groups, named))

    @property
    def _passwords(self) -> dict[str, str]:
        found: dict[str, Any] = json.loads((self._secrets / _PASSWORDS).read_text())
        return found
