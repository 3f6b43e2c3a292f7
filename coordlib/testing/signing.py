"""Control records in tests and simulated worlds: signed by a stand-in that needs no library.

The stand-in has the lengths of Ed25519, and one weakness: who knows the public half can sign. There
only the driver tries to.
"""

from hashlib import blake2b
from typing import Final

import msgspec

from coordlib.core.engine.state import ShardSettings
from coordlib.core.wire.api import Control
from coordlib.core.wire.stored import ControlKey
from coordlib.job.control import Signatures, Signer

_HALF_BYTES: Final = 32


def public_of(secret: bytes) -> bytes:
    return blake2b(secret, digest_size=_HALF_BYTES).digest()


def sign(secret: bytes, message: bytes) -> bytes:
    return _seal(public_of(secret), message)


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    return _seal(public, message) == signature


def _seal(public: bytes, message: bytes) -> bytes:
    return blake2b(message, key=public).digest()


def stand_in(secret: bytes) -> Signatures:
    """A way to sign in which every new secret is this one: nothing is drawn at random."""
    return Signatures(lambda: secret, public_of, sign, verify)


class Keyholder:
    """A driver's key, and what it signs, start after start.

    Args:
        since: of each shard, the offset from which on records must be signed; 0 where none is said.
    """

    def __init__(self, name: str = "key-1", since: dict[int, int] | None = None) -> None:
        self._secret = name.encode()
        rows = {str(shard): offset for shard, offset in (since or {}).items()}
        self.key = ControlKey(key=name, public=public_of(self._secret), since=rows)

    def settings(self, settings: ShardSettings, *older: "Keyholder") -> ShardSettings:
        """The settings of shards that know this key, and older ones."""
        keys = (*(each.key for each in older), self.key)
        return msgspec.structs.replace(settings, keys=keys, verify=verify)

    def signer(self, settings: ShardSettings, start: int = 1) -> Signer:
        """What a start of the driver signs with."""
        return Signer(
            start, self.key.key, settings.incarnation, lambda message: sign(self._secret, message)
        )


def signed(signer: Signer, shard: int, *records: Control) -> list[bytes]:
    """What the driver writes, in order."""
    return [signer.value(shard, record) for record in records]
