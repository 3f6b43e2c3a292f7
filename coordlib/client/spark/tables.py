"""The Delta tables that a group has written to, as the offsets of the group name them.

Each offset that is committed with rows names the table that has them: its URI, its id, a version
that it had with a digest of it, and the application whose commit comes behind that. So a member
that begins finds with the offsets which table must be there, and takes no old copy for it.
Every commit replaces what its partition's offset names: it names all that the group's offsets have
named, and not only what this process has written to.  # INV-120, INV-157
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Final

from coordlib.client.groups.topic_ids import TopicIds
from coordlib.client.kit import signals as sg
from coordlib.client.kit.answers import of_all
from coordlib.client.kit.offsets import under_ids
from coordlib.client.kit.signals import TopicPartition
from coordlib.client.transactions.in_doubt import Written, metadata_of, newest_of, tables_in
from coordlib.core.wire import requests as rq
from coordlib.errors import CannotReach

if TYPE_CHECKING:
    from coordlib.client.groups.assigned_member import AssignedMember

_LOOK_EVERY_S: Final = 0.05


class Tables:
    """What one member knows of them. `of` and `saw` are for Spark's thread."""

    def __init__(self, member: "AssignedMember", ids: TopicIds) -> None:
        self._member, self.ids = member, ids
        #: By URI, the one that was written to last at the end.
        self._seen: dict[str, Written] = {}
        #: By URI, those that the group's offsets have named; None: not asked for yet.
        self._named: dict[str, Written] | None = None

    def of(self, uri: str, may_work: Callable[[], bool]) -> Written | None:
        """The table that must be at this URI; None: the group has written to none there.

        The group is asked once for each URI: other members may have written there.

        Raises CannotReach: its committed offsets are not known, or the member may work no more.
        """
        if (seen := self._seen.get(uri)) is not None:
            return seen
        answer = _answer(self._fetch_all(), may_work)
        if answer is None or answer.error is not None:
            what = "It is not known which table the group has written to."
            mend = "Look whether the job runs: coord status. Then start the reader again."
            raise CannotReach(what, uri, mend) from (answer.error if answer is not None else None)
        return newest_of(uri, (row.metadata for row in answer.offsets))

    def saw(self, uri: str, written: Written) -> None:
        """This member writes to it."""
        self._seen.pop(uri, None)
        self._seen[uri] = written

    def metadata(self, uri: str, app: str) -> str:
        """Of offsets whose rows this application is to commit into the table at this URI; it names
        the others, too."""
        others = {each: at for each, at in self._all().items() if each != uri}
        return metadata_of(others | {uri: self._seen[uri]._replace(behind=app)})

    def committed(self, partitions: Sequence[TopicPartition]) -> "Future[sg.Answer]":
        """Committed offsets, for `noted`; before the first commit those of the whole group, too.

        Those that were asked for come last.
        """
        wanted = self._member.committed_async(partitions)
        return wanted if self._named is not None else of_all([self._fetch_all(), wanted])

    def noted(self, metadata: Iterable[str]) -> None:
        """Keep what committed offsets name."""
        named = dict(self._named or {})
        for text in metadata:
            for uri, at in tables_in(text).items():
                named[uri] = _newer(at, named.get(uri))
        self._named = named

    def commit(self, offsets: Mapping[TopicPartition, int]) -> "Future[sg.Answer]":
        """Commit offsets without waiting, with all tables that the group has written to."""
        return self._member.commit_async(self.rows(offsets, metadata_of(self._all())))

    def rows(
        self, offsets: Mapping[TopicPartition, int], metadata: str
    ) -> tuple[rq.CommittedOffset, ...]:
        """As a commit carries them: with the ids of the topics that they are of."""
        rows = [
            rq.CommittedOffset(*each, at, metadata=metadata) for each, at in sorted(offsets.items())
        ]
        return under_ids(rows, self.ids.begun)

    def _all(self) -> dict[str, Written]:
        """Those that this member has written to last, since the first have no room at times."""
        named, seen = self._named or {}, dict(self._seen)
        others = {uri: at for uri, at in named.items() if uri not in seen}
        return others | {uri: _newer(at, named.get(uri)) for uri, at in seen.items()}

    def _fetch_all(self) -> "Future[sg.Answer]":
        return self._member.ask(
            lambda now_ms, ticket: sg.FetchOffsets(now_ms, ticket, None, is_stable=False)
        )


def _newer(one: Written, other: Written | None) -> Written:
    return max(one, other or one, key=lambda each: (each.turn, each.version))


def _answer(future: "Future[sg.Answer]", may_work: Callable[[], bool]) -> sg.Answer | None:
    """None: the member may not work any more."""
    while True:
        try:
            return future.result(_LOOK_EVERY_S)
        except FutureTimeout:
            if not may_work():
                return None
