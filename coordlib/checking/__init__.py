"""Promises, held against a recorded history of members."""
