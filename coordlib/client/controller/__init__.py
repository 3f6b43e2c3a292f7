"""Brokers of a cluster: who leads what, who is in sync, and when to stop.

`life` is the state machine, made of parts: `targets` (which state it wants to be in), `replicas`
(what it leads and follows, and which callback is next), `resigning` (how it lets go), `in_sync`
(who must acknowledge), `gate` (whether it takes requests), `reports`, `leaving`, `picture`,
`question` (how it gets the picture).
`folder` keeps a second process out; `agent` is the shell.
"""

from coordlib.client.controller.agent import BrokerAgent
from coordlib.client.controller.metadata import ClusterMetadata
from coordlib.client.controller.requests import (
    BrokerFenced,
    BrokerReplaced,
    BrokerTiming,
    Following,
    Leadership,
    MetadataRefused,
    NotLeader,
)

__all__ = [
    "BrokerAgent",
    "BrokerFenced",
    "BrokerReplaced",
    "BrokerTiming",
    "ClusterMetadata",
    "Following",
    "Leadership",
    "MetadataRefused",
    "NotLeader",
]
