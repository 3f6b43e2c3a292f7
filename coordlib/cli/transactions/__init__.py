"""`coord transactions`."""
