"""What the driver does beside its batches: ticks, watches of topics and offsets, lag, status."""
