"""Principals of a test: each is new, and has the rights that it is given, and no other."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coordlib.kafka.acls import grant
from coordlib.kafka.roles import Right

_numbers: Final = count(1)
_PATIENCE_S: Final = 20.0


@dataclass(frozen=True)
class Principals:
    """Made by the admin of a secured stack."""

    admin: dict[str, str]

    def new(self, rights: Sequence[Right]) -> dict[str, str]:
        """librdkafka's options of somebody who has these rights, and no others."""
        user, password = f"somebody-{next(_numbers)}", secrets.token_urlsafe(16)
        admin = AdminClient(self.admin)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        wanted: list[Any] = [UserScramCredentialUpsertion(user, info, password.encode())]
        for answer in admin.alter_user_scram_credentials(wanted).values():
            answer.result(_PATIENCE_S)
        if rights:
            grant(self.admin, f"User:{user}", rights)
        self._await(admin, user, len(rights))
        return {**self.admin, "sasl.username": user, "sasl.password": password}

    def _await(self, admin: AdminClient, user: str, rights: int) -> None:
        """The broker takes them over a moment after its controller has."""
        anything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        deadline = time.monotonic() + _PATIENCE_S
        while len(admin.describe_acls(anything).result(_PATIENCE_S)) < rights:
            assert time.monotonic() < deadline, "rights are not seen"
            time.sleep(0.02)
