"""`coord groups`, `coord history`: consumer groups."""
