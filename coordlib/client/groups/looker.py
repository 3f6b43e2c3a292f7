"""Looks into Delta tables for a member, each beside everything else: it takes seconds."""

import logging
import time
from collections.abc import Callable
from functools import partial

from msgspec import UNSET

from coordlib.client.groups.machine import offset_of
from coordlib.client.kit import events as sg
from coordlib.client.kit.requests import Identity
from coordlib.client.transactions.delta_commits import Table, app_id, newest_of, open_files, settle
from coordlib.errors import CoordError

_log = logging.getLogger("coordlib.client")
#: Opens the table at a path or URI, as the application with this id sees it.
Opener = Callable[[str, str], Table]


class Looker:
    """Finds out for one member what became of other members' batches.

    Args:
        feed: the member's own.
        now_ms: the member's clock.
        spawn: runs a look; if it raises, the member fails.
    """

    def __init__(
        self,
        identity: Identity,
        feed: Callable[[sg.Input], None],
        now_ms: Callable[[], int],
        spawn: Callable[[Callable[[], None]], None],
    ) -> None:
        self._identity, self._feed, self._now_ms = identity, feed, now_ms
        #: A reader with Spark puts its own here.
        self.opener: Opener = open_files
        #: Tests have time that stands still, and run a look themselves.
        self.spawn = spawn
        #: Why something could not be found out; "": nothing of the kind, or it was since.
        self.trouble = ""

    def begin(self, look: sg.LookInto) -> None:
        """Look without waiting; what was found is fed to the member."""
        self.spawn(partial(self._look, look))

    def _look(self, look: sg.LookInto) -> None:
        told = look.awaited
        result = None
        try:
            table, member = told.table or "", told.member or ""
            since_ms = 0 if told.since_ms is UNSET else told.since_ms
            opened = self.opener(table, app_id(self._identity, member))
            age_ms = int(time.time() * 1000) - since_ms
            known = newest_of(table, [told.metadata or ""])
            result = settle(opened, offset_of(told.key), look.token, age_ms, known)
            self.trouble = ""
            _log.info("%s, a batch in doubt, is decided by %s: %s", told.key, table, result)
        except CoordError as problem:
            self._failed(told.key, str(problem))
        except Exception as problem:  # noqa: BLE001  of Spark, of deltalake, of any store
            self._failed(told.key, repr(problem)[:500])
        finally:
            self._feed(sg.Looked(self._now_ms(), told.key, result))

    def _failed(self, key: str, why: str) -> None:
        self.trouble = f"Offsets wait for {key}, which cannot be looked for: {why}"
        _log.warning("group %s: %s", self._identity.group, self.trouble)
