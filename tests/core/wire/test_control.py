"""What is signed of a control record: bytes that a program in another language can make, too."""

import pytest

from coordlib.core.wire import api, codec, control
from coordlib.core.wire.envelope import Refusal

UNSIGNED = b'{"type":"Tick","v":1,"n":[2,7],"key":"a1","published":41}'


def test_what_is_signed_names_purpose_incarnation_and_shard() -> None:
    """A signature that said less would hold for a copy in another shard, or in topics made anew."""
    assert control.signed_bytes("YjVo5al4", 1, UNSIGNED) == (
        b"coord-control-1\0YjVo5al4\x001\0" + UNSIGNED
    )


def test_the_signature_is_the_last_field() -> None:
    """So nobody needs a canonical form of JSON: what is before it stays as it was written."""
    value = control.with_signature(UNSIGNED, b"\1\2\3")

    assert value == b'{"type":"Tick","v":1,"n":[2,7],"key":"a1","published":41,"sig":"AQID"}'
    assert codec.decode_request(value) == api.Tick(
        v=1, n=(2, 7), key="a1", sig=b"\1\2\3", published=41
    )
    assert control.without_signature(value, b"\1\2\3") == UNSIGNED


@pytest.mark.parametrize(
    "value",
    [
        b'{"type":"Tick","v":1,"n":[2,7],"key":"a1","sig":"AQID","published":41}',
        b'{"type":"Tick","v":1,"n":[2,7],"key":"a1","published":41,"sig":"AQID" }',
        b'{"type":"Tick","v":1,"n":[2,7],"key":"a1","published":41, "sig":"AQID"}',
        b'{"type":"Tick","v":1,"n":[2,7],"key":"a1","published":41,"sig":"\\u0041QID"}',
        UNSIGNED,
    ],
)
def test_a_signature_elsewhere_is_none(value: bytes) -> None:
    """A program that puts its fields in another order must not be believed by half."""
    assert control.without_signature(value, b"\1\2\3") is None


def test_an_unsigned_record_has_the_bytes_of_before() -> None:
    """Jobs and tools of before read it: new fields are absent, not null."""
    assert codec.encode(api.Tick(v=1, published=3)) == b'{"type":"Tick","v":1,"published":3}'


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (b'"n":[-1,0]', "n"),
        (b'"n":[1]', "n"),
        (b'"n":[1,2,3]', "n"),
        (b'"n":[1,9223372036854775808]', "n"),
        (b'"n":null', "n"),
        (b'"key":"%s"' % (b"k" * 65), "key"),
        (b'"sig":"%s"' % (b"AAAA" * 22), "sig"),
        (b'"sig":"?"', "sig"),
    ],
)
def test_fields_out_of_bounds_are_a_refusal(fields: bytes, named: str) -> None:
    """INV-40: a forger may send anything."""
    refused = codec.decode_request(b'{"type":"Tick","v":1,"published":3,%s}' % fields)

    assert isinstance(refused, Refusal)
    assert named in refused.message
