"""Consumers of claims: partitions are claimed by writing to a coordination topic. No job needed."""
