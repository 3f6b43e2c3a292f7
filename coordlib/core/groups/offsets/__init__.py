"""Requests that all kinds of groups judge alike: about offsets, and DeleteGroup; retention."""
