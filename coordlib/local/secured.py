"""A local stack behind TLS, passwords and ACLs: users, their files, and the broker's settings.

    secrets/   passwords.json, and the files of certificates.py
    clients/   <user>.properties for each role, and for `admin`, who may do anything

Only this user can enter the folders and read the files. Passwords are drawn once, at the first
start, and stand in files alone: no command line, log or message has them.
"""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, Final

from coordlib.installation import conf_file
from coordlib.kafka.acls import grant, set_passwords
from coordlib.kafka.options import read_options
from coordlib.kafka.roles import Role, options_of, rights
from coordlib.local.certificates import BROKER_NAME, Certificates
from coordlib.local.java import property_value
from coordlib.local.private_files import write_private
from coordlib.local.stack_folder import PRIVATE

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

    def add_users(self, bootstrap_servers: str) -> None:
        """Add the users that this stack lacks: older code has made it, with fewer roles.

        Raises:
            CannotReach, NotAllowed: the broker does not take them.
        """
        missing = [user for user in _USERS if user not in self._passwords]
        if not missing:
            return
        drawn = {user: secrets.token_urlsafe(24) for user in missing}
        set_passwords(self.options_of(ADMIN), drawn)
        write_private(self._secrets / _PASSWORDS, json.dumps(self._passwords | drawn))
        self.write_clients(bootstrap_servers)

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
