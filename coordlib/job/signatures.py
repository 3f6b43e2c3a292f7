"""Ed25519 (RFC 8032) for control records, by PyNaCl.

A shared secret would be cheaper to check, but every worker that judges would hold it. A shard has a
tick or two per CAP, and heartbeats are not signed.
"""

from collections.abc import Callable
from typing import Final, NamedTuple


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
