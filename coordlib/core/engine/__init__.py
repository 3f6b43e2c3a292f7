"""The engine: one shard and the values in it. It names no kind of entity."""
