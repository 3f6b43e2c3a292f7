"""Which shard a group belongs to: Java's arithmetic, because every client must agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordlib.core.wire.envelope import java_hash, reply_partition_of, shard_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("polygenelubricants", -(2**31)),  # the known string whose hash has no absolute value
        ("\U0001f600", 1_772_899),  # two UTF-16 units in Java
    ],
)
def test_hashes_as_java_does(text: str, expected: int) -> None:
    """`"polygenelubricants".hashCode()` is Integer.MIN_VALUE."""
    assert java_hash(text) == expected


def test_the_hash_without_absolute_value_is_shard_0() -> None:
    """Kafka's Utils.abs."""
    assert shard_of("polygenelubricants", 7) == 0


@given(st.text(), st.integers(1, 1_000))
def test_every_text_has_a_shard(text: str, shards: int) -> None:
    """Also text that no client may use."""
    assert 0 <= shard_of(text, shards) < shards
    assert reply_partition_of(text, shards) == shard_of(text, shards)
