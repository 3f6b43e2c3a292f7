"""Options of which exactly one is to be given."""

from collections.abc import Callable
from typing import Any


def exactly_one(*options: str) -> Callable[[Any], None]:
    """A validator for a group of options; `options`: how they are called in its error."""

    def validate(given: Any) -> None:
        if len(given.filter_by(value_set=True)) != 1:
            raise ValueError(f"Give one of {' and '.join(options)}.")

    return validate
