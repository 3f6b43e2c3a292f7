"""Members of classic groups: they divide the partitions among themselves (seeds 002, 004)."""
