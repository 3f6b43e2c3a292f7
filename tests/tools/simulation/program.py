"""A consumer program in the simulated world: a process with the real client, and how it ends."""

from collections.abc import Callable
from contextlib import suppress

from coordlib.client.groups.state import ACTIVE
from coordlib.demo.history import Happened
from coordlib.errors import CoordError
from tests.tools.simulation.cluster import Cluster
from tests.tools.simulation.scheduler import Gone, Process
from tests.tools.simulation.transport import SimulatedTransport
from tests.tools.simulation.user import Habits, User, UserError
from tests.tools.simulation.violation import Violation
from tests.tools.simulation.wishes import Wish


class Program(User):
    """One process with one consumer; or a consumer of a process that has others (`host`)."""

    def __init__(  # noqa: PLR0917  # all that one process is
        self,
        name: str,
        cluster: Cluster,
        habits: Habits,
        record: Callable[[Happened], None],
        connect: Callable[[Process], SimulatedTransport],
        wish: Wish,
        failed: Callable[["Program", CoordError], None] = lambda program, problem: None,
        host: "Program | None" = None,
    ) -> None:
        self._failed = failed
        #: The program whose process and transport it shares; None: it has its own.
        self.host = host
        #: Programs that share its process, itself not among them.
        self.guests: list[Program] = []
        if host is not None:
            host.guests.append(self)
        #: Whether its user has ended it; it may still be writing.
        self.is_done = False
        #: How it is to be ended when its thread waits no more.
        self._ends_later = ""
        #: The member id of which a callback that ended it owes the others a LeaveGroup; None: no
        #: callback has.
        self._owes_leave: str | None = None
        Process.__init__(self, cluster.scheduler, name)
        super().__init__(cluster, habits, record, connect(self), wish)

    # ---- ends ---------------------------------------------------------------------------------

    def close(self, patience_s: float = 0.0) -> None:
        """The user ends it in good order; what is still on its way gets its time."""
        self.end("closed", patience_s)

    def _fail(self, problem: CoordError) -> None:
        """Its client cannot go on, and its user ends it; perhaps somebody starts it again."""
        self.end(f"failed: {problem}")
        self._failed(self, problem)

    def end(self, how: str, patience_s: float = 0.0) -> None:
        """Close the consumer; later, if its thread waits for something now."""
        if not self.is_alive:
            return
        if self.is_blocked:
            self._ends_later = how
            return
        known_as = self._known_as()
        try:
            self._close_consumer(patience_s)
        except Gone:
            return
        self.tell("ended", detail=how)
        if self._owes_leave is None:
            self._require_leave(known_as)
        # The process goes when its producer has written everything, as flush() does.
        self.is_done, self._ends_later = True, ""
        self.after(5_000, self._exit)

    def _close_consumer(self, patience_s: float) -> None:
        with suppress(UserError):
            self.consumer.close(timeout_s=patience_s)

    def _close_in_callback(self) -> None:
        if not self.is_done:
            self.tell("closed_in_callback")
            self._owes_leave = self._known_as()
            self.end("closed in a callback")

    def _must_end(self) -> bool:
        """Whether it was ended, or is to be, since its thread last looked."""
        if self._ends_later:
            self.end(self._ends_later)
            return True
        if self._owes_leave is not None:
            self._require_leave(self._owes_leave)
            return True
        return False

    def _known_as(self) -> str:
        """The id under which the coordinator may wait for it; empty: none."""
        life = self.consumer.member._machine
        return str(life.member) if life.state in ACTIVE else ""

    def _require_leave(self, member: str) -> None:
        """INV-29: who is closed says so, or others wait for its session."""
        if member and member not in self.transport.said_leave:
            raise Violation(f"INV-29: {member} was closed, and has written no LeaveGroup")

    def _exit(self) -> None:
        """Its process ends, unless somebody else lives in it."""
        if all(each.is_done for each in self.mates):
            self.kill()
        elif self.host is not None:
            self._die()

    @property
    def mates(self) -> "tuple[Program, ...]":
        """All that live in its process."""
        first = self.host or self
        return (first, *first.guests)

    def stop(self) -> None:
        for each in self.mates:
            Process.stop(each)

    def resume(self) -> None:
        for each in self.mates:
            Process.resume(each)

    def kill(self) -> None:
        """Its process, and whoever lives in it."""
        for each in self.mates:
            each._die()
        self.transport.close()

    def _die(self) -> None:
        if self.is_alive:
            super().kill()
            self.tell("ended", detail="killed")
