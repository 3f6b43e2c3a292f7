"""Members of classic groups: their leader assigns the partitions (seeds 002, 004)."""
