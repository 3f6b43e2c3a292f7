"""Fields of requests that older jobs refuse: they are left out where the job does not name them."""

from collections.abc import Collection
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from coordlib.core.wire import api as rq
from coordlib.core.wire.admin import LATER_FIELDS, feature_of


def as_read(request: rq.Request, features: Collection[str]) -> rq.Request:
    """The request as a job reads it: without later fields that it does not name.  # INV-84

    The very same object if there is nothing to leave out. `features`: `stored.FEATURES` of the job.
    """
    for name in _later(request):
        if feature_of(_tag(request), name) not in features and _is_set(request, name):
            request = _without(request, name)
    return request


def _tag(request: rq.Request) -> str:
    return str(request.__struct_config__.tag)


def _later(request: rq.Request) -> Collection[str]:
    return LATER_FIELDS.get(_tag(request), ())


def _is_set(request: rq.Request, name: str) -> bool:
    field, _, inner = name.partition(".")
    value: Any = getattr(request, field)
    if inner:
        return any(getattr(row, inner) is not UNSET for row in value)
    return value is not UNSET


def _without(request: rq.Request, name: str) -> rq.Request:
    field, _, inner = name.partition(".")
    if not inner:
        return replace(request, **{field: UNSET})
    rows = tuple(replace(row, **{inner: UNSET}) for row in getattr(request, field))
    return replace(request, **{field: rows})
