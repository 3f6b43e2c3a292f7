"""The engine: one shard and the values in it. It knows kinds of groups, and no kind."""
