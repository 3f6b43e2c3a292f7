"""Claims: consumers claim partitions by messages that everybody reads, as Marshal's (seed 003)."""
