"""Transactional ids: producer ids, epochs, and transactions that one coordinator decides."""
