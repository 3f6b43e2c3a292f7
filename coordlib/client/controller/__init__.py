"""Brokers of a cluster (your own workers, not Kafka's): who leads, who is in sync, when to stop.

`machine.py` is a broker's state machine without IO. Its parts: `state.py` (which state the broker
asks for, whether it takes requests, how it ends), `replicas.py` (what it leads and follows, which
callback is next, how it lets go), `isr.py` (who must acknowledge), `metadata.py` (the cluster as it
was read). `agent.py` drives it; `folder.py` keeps a second process out.
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
