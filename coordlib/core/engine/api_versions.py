"""ApiVersions: which requests this job reads, with which fields, and within which bounds.

The shard itself answers, whichever it is: the sender asks before it names a group.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordlib import limits
from coordlib.core.engine import effect as fx
from coordlib.core.engine.family import Family, Registry
from coordlib.core.engine.transition import At, answer
from coordlib.core.wire import requests as rq

#: Bounds of all requests, whatever they are about.
_OF_ALL: Final[Mapping[str, int]] = {
    "client_length_max": limits.CLIENT_LENGTH_MAX,
    "correlation_id_length_max": limits.CORRELATION_ID_LENGTH_MAX,
    "name_length_max": limits.NAME_LENGTH_MAX,
    "reason_length_max": limits.REASON_LENGTH_MAX,
    "request_bytes_max": limits.REQUEST_BYTES_MAX,
}


def api_versions(
    at: At, request: rq.ApiVersions, registry: Registry, families: Iterable[Family]
) -> fx.Respond:
    """The answer; it changes nothing."""
    bounds = dict(_OF_ALL)
    for family in families:
        bounds |= family.limits()
    told = {name: bounds[name] for name in sorted(bounds)}
    return answer(request, at, types=registry.reader.fields, limits=told)
