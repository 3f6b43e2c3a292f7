"""What a start needs before it may write control records: a key that shards have, and a number.

Both are settled after older drivers are fenced, in one transaction, so no two starts have the same
number, and shards have a key before it is used. Keys and numbers stand for ever in
`coord.progress`. TIME-AND-FENCING.md, rule 17.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import structlog

from coordlib.core.wire.stored import ControlKey, ControlKeys, Marker
from coordlib.errors import StartRefused
from coordlib.job.checkpoint import SECRET_FILE
from coordlib.job.control import Signer
from coordlib.job.judged_log import bounds_of
from coordlib.job.signatures import Signatures
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.places import Place

_log = structlog.get_logger()
#: Characters of the public half, in hexadecimal, by which records name it.
_NAME_LENGTH: Final = 16
#: From where a key counts in a shard in whose log its driver never writes: nowhere.
NEVER: Final = 2**62


class Folder(Protocol):
    """The folder of a checkpoint, in whatever file system."""

    path: str

    def secret(self) -> bytes | None:
        """What its drivers sign with; None: there is nothing yet."""

    def keep_secret(self, secret: bytes) -> bytes:
        """Keep it; what another start has kept meanwhile stays, and is returned."""


class Authority(NamedTuple):
    """How shards tell the control records of this driver from forged ones."""

    signer: Signer
    #: All that there ever were.
    keys: tuple[ControlKey, ...]


def begin(
    sink: TransactionalSink,
    folder: Folder,
    incarnation: str,
    ends: Callable[[], dict[int, int]],
    signatures: Signatures,
    others: Iterable[int] = (),
) -> Authority:
    """Count this start, and publish a key if shards have none of this folder.

    Args:
        sink: has fenced older drivers.
        ends: shard -> the offset that the next record of `coord.requests` will have, of the
            driver's own shards.
        others: the shards of other cells.

    Raises:
        DriverFenced: a newer driver has started meanwhile.
        StartRefused: the folder's secret is none.
        CannotReach: no broker answers.
    """
    before = sink.keys or ControlKeys(starts=0, keys=())
    secret = folder.secret()
    if secret is None:
        secret = folder.keep_secret(signatures.new_secret())
    public = _public_of(secret, signatures, folder.path)
    name, keys = public.hex()[:_NAME_LENGTH], before.keys
    if name not in [each.key for each in keys]:
        # Not before older drivers were fenced: what they have committed was judged without it.
        since = {**_since(sink.marker, ends()), **dict.fromkeys(others, NEVER)}
        keys = (*keys, _key(name, public, since))
        _log.info("control records are signed with a new key", key=name, keys=len(keys))
    start = max(before.starts, _newest_start(sink.marker)) + 1
    sink.write_keys(ControlKeys(starts=start, keys=keys))
    signer = Signer(start, name, incarnation, lambda value: signatures.sign(secret, value))
    return Authority(signer, keys)


def _since(marker: Marker | None, ends: Mapping[int, int]) -> dict[int, int]:
    """Shard -> from where a new key counts.

    What was judged without it is judged once more as it was. Of a shard in which no job has judged
    a request there is nothing to repeat: whatever stands in its log was written by somebody else
    than a driver, so it has to be signed from the first record on.  # INV-69
    """
    positions = marker.shards if marker else {}
    judged = {int(shard) for shard, position in positions.items() if position.offset >= 0}
    return {shard: end if shard in judged else 0 for shard, end in ends.items()}


def _key(name: str, public: bytes, since: Mapping[int, int]) -> ControlKey:
    texts = {str(shard): offset for shard, offset in sorted(since.items())}
    return ControlKey(key=name, public=public, since=texts)


def _newest_start(marker: Marker | None) -> int:
    """Of what shards have obeyed: if the count was lost, a lower one would count for nothing."""
    positions = marker.shards.values() if marker else ()
    return max((position.control[0] for position in positions), default=0)


def _public_of(secret: bytes, signatures: Signatures, path: str) -> bytes:
    try:
        return signatures.public_of(secret)
    except ValueError as problem:
        raise StartRefused(
            f"The secret by which control records are signed is none: {problem}",
            path,
            f"Remove {SECRET_FILE} from this folder: the next start makes another key.",
        ) from problem


def requests_ends(
    client_options: Mapping[str, str], prefix: str, shards: Iterable[int]
) -> dict[int, int]:
    """Shard -> the offset that its next request will have. Raises CannotReach."""
    places = [Place(f"{prefix}.requests", shard) for shard in shards]
    return {at.partition: each.end for at, each in bounds_of(client_options, places).items()}
