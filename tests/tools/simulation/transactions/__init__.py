"""Users' transactions in simulated worlds: copiers, their producers, and what the driver does."""
