"""Bytes to typed requests and answers, of all types that there are, and typed values to bytes."""

from typing import Final

import msgspec

from coordlib import limits
from coordlib.core.wire import api
from coordlib.core.wire.envelope import RequestReader

_response_decoder = msgspec.json.Decoder(api.AnyResponse)

#: Total: any bytes give a request or a `Refusal`, never an exception.
decode_request: Final = RequestReader(api.AnyRequest.__args__).read


#: Any wire value as JSON; dictionaries keep their order, so equal values give equal bytes.
encode: Final = msgspec.json.Encoder().encode


def encode_request(request: api.Request) -> bytes:
    """The bytes of a request. Raises ValueError, with the reason: no job would read it."""
    try:
        value = encode(request)
    except (UnicodeError, OverflowError) as problem:  # of text or a number from the user
        raise ValueError(str(problem)) from problem
    if len(value) > limits.REQUEST_BYTES_MAX:
        raise ValueError(
            f"it has {len(value):,} bytes, and a request at most {limits.REQUEST_BYTES_MAX:,}"
        )
    return value


def decode_response(value: bytes) -> api.AnyResponse:
    """Read a response or notification. Raises msgspec.MsgspecError on anything else."""
    try:
        response: api.AnyResponse = _response_decoder.decode(value)
    except (UnicodeError, RecursionError) as problem:
        # msgspec's own way to meet bad UTF-8; readers of answers expect one kind of error.
        raise msgspec.DecodeError(f"No response: {problem}") from problem
    return response
