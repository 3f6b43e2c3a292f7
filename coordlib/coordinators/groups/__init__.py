"""Consumer groups: what members join, how partitions are divided, which offsets are committed."""
