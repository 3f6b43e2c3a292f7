"""Lag in records and in seconds: how it is measured, and the samples that are kept of it."""
