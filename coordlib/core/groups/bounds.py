"""The bounds of groups' requests, as ApiVersions answers them."""

from collections.abc import Mapping
from typing import Final

from coordlib import limits
from coordlib.config import GroupConfig

#: Those that no setting changes, by the names of `limits` in lower case.
_FIXED: Final[Mapping[str, int]] = {
    "capacity_max": limits.CAPACITY_MAX,
    "fetch_partitions_max": limits.FETCH_PARTITIONS_MAX,
    "leavers_max": limits.LEAVERS_MAX,
    "offsets_per_request_max": limits.OFFSETS_PER_REQUEST_MAX,
    "pattern_length_max": limits.PATTERN_LENGTH_MAX,
    "protocol_name_length_max": limits.PROTOCOL_NAME_LENGTH_MAX,
    "protocols_max": limits.PROTOCOLS_MAX,
    "rebalance_timeout_max_ms": limits.REBALANCE_TIMEOUT_MAX_MS,
    "rebalance_timeout_min_ms": limits.REBALANCE_TIMEOUT_MIN_MS,
    "subscribed_topics_max": limits.SUBSCRIBED_TOPICS_MAX,
}


def of(config: GroupConfig) -> dict[str, int]:
    """All bounds, with those that the job's settings give."""
    return {
        **_FIXED,
        "group_size_max": config.max_size,
        "new_groups_per_second_max": config.new_groups_per_second_max,
        "offset_metadata_length_max": config.offset_metadata_length_max,
        "offsets_bytes_per_group_max": config.offsets_bytes_per_group_max,
        "offsets_per_group_max": config.offsets_per_group_max,
        "session_timeout_max_ms": config.session_timeout_max_ms,
        "session_timeout_min_ms": config.session_timeout_min_ms,
    }
