"""Everything that the driver writes into the log of requests: signed, numbered, by one producer."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog
from confluent_kafka import KafkaError, Message

from coordlib.core.wire import codec
from coordlib.core.wire.api import Control
from coordlib.core.wire.control import signed_bytes, with_signature
from coordlib.core.wire.stored import ControlKey, ControlKeys, Marker
from coordlib.errors import StartRefused
from coordlib.job.checkpoint import SECRET_FILE
from coordlib.job.judged_log import bounds_of
from coordlib.job.sink import TransactionalSink
from coordlib.kafka.logs import Place
from coordlib.kafka.producer import LastingProducer


class Signatures(NamedTuple):
    """How control records are signed. All but `new_secret` are pure."""

    #: What a driver keeps to itself.
    new_secret: Callable[[], bytes]
    #: The public half of it.
    public_of: Callable[[bytes], bytes]
    #: Secret, what is to be signed -> the signature.
    sign: Callable[[bytes, bytes], bytes]
    #: Public half, what was signed, signature -> whether it fits; never raises.
    verify: Callable[[bytes, bytes, bytes], bool]


def new_secret() -> bytes:
    """32 bytes by chance."""
    from nacl.signing import SigningKey

    return bytes(SigningKey.generate())


def public_of(secret: bytes) -> bytes:
    """The public half, 32 bytes. Raises ValueError: it is no secret."""
    from nacl.signing import SigningKey

    return bytes(SigningKey(secret).verify_key)


def sign(secret: bytes, message: bytes) -> bytes:
    """A signature of 64 bytes; the same one each time."""
    from nacl.signing import SigningKey

    return SigningKey(secret).sign(message).signature


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the holder of the secret has signed this."""
    from nacl.exceptions import BadSignatureError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(public).verify(message, signature)
    except (BadSignatureError, ValueError):  # the second: of another length
        return False
    return True


ED25519: Final = Signatures(new_secret, public_of, sign, verify)


_log = structlog.get_logger()

#: Told why the log did not take a record; nothing if it did.
OnDelivery = Callable[[str], None]


class Signer:
    """The values of one driver's control records. Not to be shared among threads.

    Args:
        start: number of the driver's start, higher than any before.
        key: by which shards find the public half.
        incarnation: of the topics.
        sign: what is to be signed -> the signature.
    """

    def __init__(
        self, start: int, key: str, incarnation: str, sign: Callable[[bytes], bytes]
    ) -> None:
        self.start = start
        self._key, self._incarnation, self._sign = key, incarnation, sign
        self._next: dict[int, int] = {}

    def value(self, shard: int, record: Control) -> bytes:
        """What is written into the log of this shard, behind all that came before."""
        number = self._next.get(shard, 0)
        self._next[shard] = number + 1
        named = msgspec.structs.replace(record, n=(self.start, number), key=self._key)
        unsigned = codec.encode(named)
        signature = self._sign(signed_bytes(self._incarnation, shard, unsigned))
        return with_signature(unsigned, signature)


class ControlWriter:
    """The one producer of a driver's control records. Any thread may call it.

    It is never transactional: what it writes must be read at once, whatever batch is open.
    """

    def __init__(self, prefix: str, client_options: Mapping[str, Any], signer: Signer) -> None:
        self._topic, self._signer = f"{prefix}.requests", signer
        #: Held from taking a number until its record is queued.
        self._lock = threading.Lock()
        options = {**client_options, "linger.ms": 0, "delivery.timeout.ms": 10_000}
        self._producer = LastingProducer(options, "control records")

    def write(self, shard: int, record: Control, on_delivery: OnDelivery) -> None:
        """Write it behind all before; `told` hears later. Raises KafkaException, TimeoutError."""

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                kind = type(record).__name__
                _log.warning("control record not acknowledged", kind=kind, error=error.str())
            on_delivery("" if error is None else error.str())

        with self._lock:
            # Before a number is taken: what a failed producer still has must come before it.
            self._producer.renew()
            value = self._signer.value(shard, record)
            self._producer.produce(self._topic, value, partition=shard, on_delivery=note)

    def serve(self, timeout_s: float = 0.0) -> None:
        """Serve delivery callbacks; with a time, wait up to it for all. Raises KafkaException."""
        if timeout_s:
            self._producer.flush(timeout_s)
        else:
            self._producer.poll()
        with self._lock:
            self._producer.renew()

    def close(self) -> None:
        self._producer.close()


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
        others: the shards of other job instances.

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
