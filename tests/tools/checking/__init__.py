"""Checks of the promises over a recorded history of members."""
