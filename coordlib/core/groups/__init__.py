"""Consumer groups: what members join, how partitions are assigned, which offsets are committed."""
