"""The engine's state of one coordination partition, and what the core is given beside records."""

from typing import Final

import msgspec

from coordlib.core.claims.history import SPACE
from coordlib.core.engine.blob import ShardSettings, UnknownStateVersion
from coordlib.core.engine.refusal_lines import Refusals

STATE_VERSION: Final = 1
#: Letter of the coordination topic, in coordinates and positions.
MESSAGES: Final = "m"


class Coordination(msgspec.Struct, frozen=True, kw_only=True):
    """Which coordination topic is folded: `ShardSettings.families["claims"]`.

    It names the log and sets nothing: the fold of one log has one outcome.
    """

    topic: str
    #: Kafka's id of the topic, as clients see it.
    topic_id: str


def coordination(settings: ShardSettings) -> Coordination:
    """Of a shard's settings. Raises KeyError: they are another plane's."""
    found: Coordination = settings.families[SPACE]
    return found


class StoredClaims(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The blob. Fields are added at the end only."""

    version: int
    #: `World.snapshot`.
    world: bytes
    #: Refusals of what concerns no slot that is here.
    refusals: Refusals = msgspec.field(default_factory=Refusals)
    #: Those of each group that has such slots.
    refusals_of: list[tuple[str, Refusals]] = []
    #: Client -> on the clock: when history has warned of its clock.
    clocks: list[tuple[str, int]] = []
    #: Pages of the newest snapshot that was written.
    pages: int = 0
    #: The first record that should have come next, but was removed; -1: none was. Told once.
    gap_from: int = -1


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(StoredClaims).decode


class _Versioned(msgspec.Struct, array_like=True):
    version: int


_decode_version: Final = msgspec.msgpack.Decoder(_Versioned).decode


def encode_blob(stored: StoredClaims) -> bytes:
    """Write a blob.  # INV-03"""
    return _encode(stored)


def decode_blob(blob: bytes) -> StoredClaims:
    """Read a blob. Raises UnknownStateVersion, msgspec.MsgspecError."""
    version = _decode_version(blob).version
    if version != STATE_VERSION:
        raise UnknownStateVersion(
            f"The state of claims has version {version}, this code knows {STATE_VERSION}: start "
            "the code that wrote it, or rebuild into a new checkpoint with --rebuild."
        )
    return _decode(blob)
