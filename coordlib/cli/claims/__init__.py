"""`coord claims`."""
