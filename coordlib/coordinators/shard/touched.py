"""The rows of a shard by key, which note who was looked up: nothing else can have changed.

A batch's end asks for what changed: heads to save, pages to write. A mark at each change would be
forgotten at one of them some day. So whoever is looked up is taken for changed; a healthy
heartbeat, which changes one number of soft state, has a look-up of its own (`peek`).
"""

from collections.abc import Callable, Iterable
from typing import Any

from coordlib.coordinators.shard.row import Row
from coordlib.coordinators.shard.transition import Key


class TouchedRows(dict[Key, Row]):
    """Look-ups, additions and removals are noted; walking over all rows is not."""

    def __init__(self, rows: Iterable[tuple[Key, Row]] = ()) -> None:
        super().__init__(rows)
        #: The keys that may stand for something else than when the batch began.
        self.touched: set[Key] = set()
        #: As `get`, for who changes only when members were heard.
        self.peek: Callable[[Key], Row | None] = super().get

    def get(self, key: Key, default: Any = None) -> Any:
        """The row, perhaps to be changed."""
        self.touched.add(key)
        return super().get(key, default)

    def __getitem__(self, key: Key) -> Row:
        self.touched.add(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Key, row: Row) -> None:
        self.touched.add(key)
        super().__setitem__(key, row)

    def __delitem__(self, key: Key) -> None:
        self.touched.add(key)
        super().__delitem__(key)
