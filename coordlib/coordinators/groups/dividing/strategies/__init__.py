"""How partitions are divided among the members of a server-assigned group: pure functions."""
