"""The state that a broker wants to be in, and when it says so (KIP-343, MetadataHeartbeat).

A BrokerHeartbeat is sent when target and state differ, and while a broker that stops may not yet;
signs of life are plain heartbeats. `since` names the state that it knows: where that is not the
present one, nothing changes, and the answer tells the present one (rule 12).
"""

from coordlib.client.controller.standing import REGISTERED, BrokerStanding, State
from coordlib.client.controller.wording import Target
from coordlib.client.kit import signals as sg

#: How often a broker that stops asks whether it may, beside each time it has let go.
STOP_ASK_MS = 1_000
UNPOLLED = "poll was not called"


class Targets:
    """What one broker wants, by what its user wants and does."""

    def __init__(self, me: BrokerStanding) -> None:
        self._me = me
        #: The user's: Active once it is ready, Stopping from when it wants to end.
        self._wanted = State.INACTIVE
        self._polled_ms = 0
        #: Whether the user's thread was not seen for the release timeout.
        self._is_away = False
        #: It gave up its leaderships by itself, and has to say so: from then on nothing but the
        #: answer to its word Inactive lets it lead (rule 15).
        self.owes_word = False
        #: Not before that: user code that has just asked must be done (the fence's margin).
        self._word_from_ms = 0
        #: Ask for the state, whatever is wanted.
        self.must_ask = False
        self._may_stop = False
        self._ask_again_ms: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether a broker that stops has nothing left that another could lead."""
        me = self._me
        if self._wanted is not State.STOPPING:
            return False
        is_out = me.state in (State.INITIAL, State.INACTIVE) and not self._is_entering
        return is_out or (me.state is State.STOPPING and self._may_stop)

    @property
    def _is_entering(self) -> bool:
        """Whether it may become Active any moment."""
        return self._me.step is not None and self._me.state is State.INACTIVE

    # ---- the user -----------------------------------------------------------------------------

    def seen(self, now_ms: int) -> None:
        """The user's thread is here."""
        self._polled_ms, self._is_away = now_ms, False

    def ready(self, now_ms: int) -> None:
        """Be Active; one that stops goes on."""
        self.seen(now_ms)
        self._wanted = State.ACTIVE

    def stop(self, now_ms: int) -> None:
        """Let others lead."""
        self.seen(now_ms)
        self._wanted = State.STOPPING

    def elapsed(self, now_ms: int) -> None:
        """Note that the user's thread is missed."""
        if now_ms - self._polled_ms >= self._me.timing.release_timeout_ms:
            self._is_away = True

    def gives_up(self, now_ms: int) -> bool:
        """Whether it leads nothing from now on, as its user is away; true once."""
        is_in = self._me.is_ready or self._is_entering
        if not self._is_away or self.owes_word or not is_in:
            return False
        self.owes_word, self._word_from_ms = True, now_ms + self._me.timing.margin_ms
        return True

    def went_out(self) -> None:
        """It has read that it is Inactive."""
        self.owes_word, self._may_stop, self._ask_again_ms = False, False, None

    def due_ms(self) -> int | None:
        """When something is to be said, or the user is to be missed."""
        me = self._me
        if me.state not in REGISTERED:
            return None
        due = [] if self._is_away else [self._polled_ms + me.timing.release_timeout_ms]
        if me.step is None:
            due += [self._word_from_ms] if self.owes_word else []
            due += [] if self._ask_again_ms is None else [self._ask_again_ms]
        return min(due, default=None)

    # ---- said ---------------------------------------------------------------------------------

    def say(self, now_ms: int, is_free: bool) -> None:
        """Send a BrokerHeartbeat if one is due.

        Args:
            is_free: whether the user knows that the door is closed, if it is. Before that it must
                not be opened again. A user who is away cannot be told; then the margin has passed.
        """
        me = self._me
        if me.step is not None or not self._is_due(now_ms):
            return
        target = self._target()
        may_say = now_ms >= self._word_from_ms if self.owes_word else is_free
        if may_say:
            self.must_ask, self._ask_again_ms = False, None
            reason = UNPOLLED if self.owes_word else None
            said = me.said.broker, me.incarnation, me.since
            me.take(now_ms, sg.Send(me.wording.target(*said, target, reason)))

    def _is_due(self, now_ms: int) -> bool:
        is_again = self._ask_again_ms is not None and now_ms >= self._ask_again_ms
        return self.must_ask or is_again or self._target() != self._me.state.value

    def _target(self) -> Target:
        if self.owes_word or self._is_away or self._wanted is State.INACTIVE:
            return "Inactive"
        if self._wanted is State.STOPPING:
            return "Stopping" if self._me.is_ready else "Inactive"
        return "Active"

    def answered(self, now_ms: int, may_stop: bool) -> None:
        """An answer is here; it is asked again until the broker may stop."""
        self._may_stop = may_stop
        is_stopping = self._wanted is State.STOPPING and not may_stop
        self._ask_again_ms = now_ms + STOP_ASK_MS if is_stopping else None

    def let_go(self, now_ms: int) -> None:
        """Nothing is to be let go of any more: perhaps it may stop now."""
        if self._ask_again_ms is not None:
            self._ask_again_ms = now_ms
