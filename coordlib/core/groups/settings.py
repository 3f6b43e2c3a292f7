"""What consumer groups have of the configuration."""

from typing import Any

import msgspec

from coordlib.config import GroupConfig, TransactionsConfig


class GroupSettings(msgspec.Struct, frozen=True):
    """The section `group`, what was loaded by the section `assigned`, and `transactions`."""

    config: GroupConfig = GroupConfig()
    #: Strategies that the configuration adds, by friendly name: pure functions.
    strategies: dict[str, Any] = {}
    transactions: TransactionsConfig = TransactionsConfig()
