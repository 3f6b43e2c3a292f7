"""Exactly once with a transaction of Kafka: what a program reads from its group, and writes."""
