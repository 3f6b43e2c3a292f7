"""The signed bytes of a control record, and the place of the signature in it.

A control record is signed for one shard of one incarnation of the topics, so a copy of it is void
anywhere else. Its last field is `sig`; the signature is over the record before that field was put
in, so no canonical form of JSON is needed.
"""

from base64 import b64encode
from typing import Final

#: Names what the signature is for; a record of another layout gets another one.
PURPOSE: Final = "coord-control-1"
_FIELD: Final = b',"sig":"'
_END: Final = b'"}'


def signed_bytes(incarnation: str, shard: int, unsigned: bytes) -> bytes:
    """The bytes over which the signature of a record is made.

    Args:
        unsigned: the record's value without the field `sig`.
    """
    place = "".join(f"{part}\0" for part in (PURPOSE, incarnation, shard))
    return place.encode() + unsigned


def with_signature(unsigned: bytes, signature: bytes) -> bytes:
    """The record's value, `sig` last."""
    return unsigned.removesuffix(b"}") + _FIELD + b64encode(signature) + _END


def without_signature(value: bytes, signature: bytes) -> bytes | None:
    """The value without its last field; None: that is not this signature."""
    field = _FIELD + b64encode(signature) + _END
    return value.removesuffix(field) + b"}" if value.endswith(field) else None
