"""Clusters of brokers: who is alive, who leads what, and who has everything (KIP-343)."""
