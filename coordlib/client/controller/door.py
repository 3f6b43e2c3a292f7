"""The door of one broker: whether it takes requests and shows metadata (KIP-343's fencing).

Acting as leader and being there end apart (TIME-AND-FENCING.md, Brokers): a lease ends before the
session does, by the fence; the door closes after F without contact, or at once where the broker
reads that it is Inactive. It opens when Active is answered, and again when the fence is open: then
the broker has been Active all the time (rule 11).
"""

NO_CONTACT = "no contact with the log for the fence timeout"


class Door:
    """Closed at first. Times are milliseconds of the fence's clock."""

    def __init__(self, door_ms: int) -> None:
        self._door_ms = door_ms
        #: When the older one began of: the newest acknowledged sign of life, the newest reading.
        self._contact_ms: int | None = None
        self._is_open = False
        #: Whether the user was told that it is open.
        self.is_told = False
        #: Why the user is to be told that it was closed; None: he is not.
        self.closed_because: str | None = None

    def touched(self, signed_ms: int, read_ms: int | None) -> None:
        """There was contact: both ways."""
        if read_ms is not None:
            self._contact_ms = min(signed_ms, read_ms)

    def open(self) -> None:
        """The broker is Active, and its fence is open."""
        self._is_open = True

    def close(self, why: str) -> None:
        """It is closed, or closed already."""
        if self.is_told and self.closed_because is None:
            self.closed_because = why
        self._is_open = False

    def look(self, now_ms: int) -> None:
        """Note the time before anything else is noted: what comes later must not hide it."""
        if self._is_open and not self.is_open(now_ms):
            self.close(NO_CONTACT)

    def is_open(self, now_ms: int) -> bool:
        """Whether the broker takes requests; without side effects."""
        contact_ms = self._contact_ms
        return self._is_open and contact_ms is not None and now_ms - contact_ms <= self._door_ms
