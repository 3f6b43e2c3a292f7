"""What transactional ids are configured with."""

import msgspec

from coordlib import limits
from coordlib.config import TransactionsConfig


class TransactionsSettings(msgspec.Struct, frozen=True):
    """The section `transactions`, and the rate of new groups, which new ids have, too."""

    config: TransactionsConfig = TransactionsConfig()
    new_per_second_max: int = limits.NEW_GROUPS_PER_SECOND_MAX
