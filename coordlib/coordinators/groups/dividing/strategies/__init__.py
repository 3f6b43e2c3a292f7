"""Strategies that assign partitions to the members of server-assigned groups: pure functions."""
