"""What clusters of brokers are configured with."""

import msgspec

from coordlib.config import BrokersConfig


class BrokersSettings(msgspec.Struct, frozen=True):
    """The settings of the family."""

    config: BrokersConfig = BrokersConfig()
