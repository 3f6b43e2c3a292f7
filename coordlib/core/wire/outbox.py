"""Values of `coord.outbox` beside the messages: how far each channel between two shards is."""

import msgspec


class SentValue(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard has sent to another one. Key: `["sent",shard]`."""

    #: Number of the newest message.
    sent: int
    #: Number of the newest one that the sender knows to be judged.
    heard: int


class HeardValue(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of another shard a shard has judged. Key: `["heard",shard]`."""

    heard: int
