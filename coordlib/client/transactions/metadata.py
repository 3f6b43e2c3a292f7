"""Who a consumer is in its group, for offsets that are sent with a transaction."""

from dataclasses import dataclass, field, replace

from coordlib.client.kit.transport import Transport
from coordlib.client.kit.wording import Identity


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member at one moment: what it has read from now on belongs to this generation.

    Take it when a unit of work begins. Offsets that are sent under it are refused once the member
    has lost what it read: by a rebalance of a classic group, or, in a server-assigned group, when
    it lost one of the partitions.
    """

    member: str
    generation: int
    #: How the answer reaches this program.
    identity: Identity = field(repr=False)
    transport: Transport = field(repr=False, compare=False)

    def asking(self) -> Identity:
        """The same member under a token of its own, so that answers are told apart."""
        return replace(self.identity, token=self.transport.new_token())
