"""Spark queries as members."""
