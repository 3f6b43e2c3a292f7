"""Kafka's assignors, each a pure function: members and partitions in, who gets what out.

`range`, `roundrobin`, `sticky` and `cooperative_sticky` are run by a group's leader; topics that do
not exist are ignored. `server_range` and `uniform` are what a broker runs for KIP-848 groups; they
refuse topics that do not exist. `model` has what goes in and comes out.
"""
