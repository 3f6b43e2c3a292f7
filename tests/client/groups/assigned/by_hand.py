"""A coordinator that is a test: it sees what members write, and says what it likes."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from coordlib.client.kit import events as sg
from coordlib.client.kit.transport import Handler
from coordlib.core.groups.assignors.model import ReplicaRacks
from coordlib.core.wire import api
from coordlib.kafka.layout import Place
from tests.client.groups.assigned.play import Demands, picture

PLACE = Place("coord", 1, 1, "AbCdEfGh")


class ByHand:
    """A transport for one member. Time stands still; what is sent is in the log at once."""

    def __init__(self) -> None:
        self.place, self.reply = PLACE, 0
        self.written: list[api.Request] = []
        self.time_ms = 0
        self._unheard: list[Callable[[], None]] = []

    # ---- the coordinator's side -----------------------------------------------------------------

    def newest(self, kind: type[Any]) -> Any:
        """The newest request of a kind."""
        return next(each for each in reversed(self.written) if isinstance(each, kind))

    def pump(self) -> None:
        """The member hears what the log took, and reads to the end."""
        while self._unheard:
            self._unheard.pop(0)()
        self.handler.feed(sg.ReadToEnd(self.time_ms, self.time_ms))

    def answer(self, to: api.Request, kind: type[api.Response], **fields: Any) -> None:
        self.pump()
        named = {"id": to.id, "client": to.client, "group": to.group, "cause": "r0-0"}
        self.handler.feed(sg.Received(self.time_ms, kind(**named, **fields)))

    def grant(self, *numbers: int, **more: Any) -> None:
        """Answer the newest Subscribe."""
        asked = self.newest(api.Subscribe)
        member = f"{asked.client}-AbCdEfGh-0-0"
        fields = picture(numbers, member=member, **more)
        self.answer(asked, api.SubscribeResponse, strategy="sticky", **fields)

    def tell(self, *numbers: int, release: Demands | None = None, **more: Any) -> None:
        member = f"{self.handler.identity.client}-AbCdEfGh-0-0"
        fields = picture(numbers, release, member=member, **more)
        notice = api.AssignmentChanged(group=self.handler.identity.group, cause="r0-95", **fields)
        self.handler.feed(sg.Received(self.time_ms, notice))

    # ---- the member's side: coordlib.client.kit.transport.Transport -----------------------

    def now_ms(self) -> int:
        return self.time_ms

    @property
    def host(self) -> str | None:
        return None

    def new_token(self) -> str:
        return "cafe"

    def attach(self, handler: Handler) -> None:
        self.handler = handler
        handler.feed(sg.ReadToEnd(self.time_ms, self.time_ms))

    def detach(self, handler: Handler) -> None:
        pass

    def send(self, handler: Handler, request: api.Request) -> None:
        offset, now_ms = len(self.written), self.time_ms
        self.written.append(request)
        taken = sg.Acknowledged(now_ms, request.id, offset, now_ms)
        self._unheard.append(lambda: handler.feed(taken))

    def in_background(self, handler: Handler, work: Callable[[], None]) -> None:
        self._unheard.append(work)

    def partition_counts(
        self, topics: Sequence[str] | None, own: Collection[str] | None = None
    ) -> dict[str, int]:
        raise AssertionError("the coordinator knows the topics")

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {}

    def replica_racks(self, topics: Sequence[str]) -> ReplicaRacks:
        raise AssertionError("the coordinator divides")

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass
