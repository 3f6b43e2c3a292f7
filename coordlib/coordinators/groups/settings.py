"""What consumer groups have of the configuration."""

from typing import Any

import msgspec

from coordlib.config import GroupConfig


class GroupSettings(msgspec.Struct, frozen=True):
    """The section `group`, and what was loaded by the section `assigned`."""

    config: GroupConfig = GroupConfig()
    #: Strategies that the configuration adds, by friendly name: pure functions.
    strategies: dict[str, Any] = {}
