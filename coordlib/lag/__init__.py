"""Lag in records and in seconds: its measurement and its samples."""
