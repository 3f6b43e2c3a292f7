"""Kafka's assignors, each a pure function: members and partitions in, who gets what out.

A group's leader runs them; topics that do not exist are ignored. `model` has what goes in and comes
out.
"""
