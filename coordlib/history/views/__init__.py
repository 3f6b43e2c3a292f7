"""SQL views of the history, by protocol."""
