"""The driver's work beside its batches: ticks, watches of topics and offsets, lag, status."""
