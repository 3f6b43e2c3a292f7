"""What a job reads: the requests, their fields, and its bounds.

An older job refuses a field that it does not know. So a client sends a field that came later only
to a job that names it. A job answers ApiVersions with all that it reads, and records the later
fields in `coord.progress` when it starts (`stored.FEATURES`), where a client finds them before its
first request. Source: ApiVersions of Apache Kafka (KIP-35), seed 004; a list of names takes the
place of version numbers, because each field here is optional by itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from coordlib import limits
from coordlib.core.wire.envelope import Part, Request, Response


class ApiVersions(Request, tag="ApiVersions", frozen=True, kw_only=True):
    """Ask which requests the job reads. It is about no group, and any shard answers."""

    group: Annotated[str, Meta(max_length=limits.NAME_LENGTH_MAX)] = ""


class ApiVersionsResponse(Response, tag="ApiVersions", frozen=True, kw_only=True):
    """The requests that the job reads, and its bounds, by the names of `limits` in lower case."""

    #: Type -> its fields; those of the rows in a field stand behind it and a dot.
    types: dict[str, tuple[str, ...]] | UnsetType = UNSET
    limits: dict[str, int] | UnsetType = UNSET


def fields_by_type(types: Iterable[type[Any]]) -> dict[str, tuple[str, ...]]:
    """The fields of each request among these types, as they are named on the wire."""
    found = {str(each.__struct_config__.tag): each for each in types if issubclass(each, Request)}
    return {tag: tuple(_fields(found[tag])) for tag in sorted(found)}


def _fields(struct: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        yield field.encode_name
        for row in _rows(field.type):
            yield from (f"{field.encode_name}.{inner}" for inner in _fields(row))


def _rows(annotation: Any) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for each in get_args(annotation):
        yield from _rows(each)


#: Fields that came after the first release of their requests, by type: a job may not read them.
LATER_FIELDS: Mapping[str, tuple[str, ...]] = {
    "JoinGroup": ("host",),
    "Subscribe": ("host",),
    "OffsetCommit": ("offsets.timestamp_ms", "offsets.topic_id"),
    "Release": ("offsets.timestamp_ms", "offsets.topic_id"),
    "PendingCommit": ("offsets.topic_id",),
    "TxnOffsetCommit": ("offsets.topic_id",),
}


def feature_of(tag: str, field: str) -> str:
    """The name under which a job records that it reads a later field."""
    return f"{tag}.{field}"


#: All of them, as a job of this code records them.
LATER_FEATURES = tuple(feature_of(tag, each) for tag, some in LATER_FIELDS.items() for each in some)
