"""The acts of stores, claims and transactions: what is done to them, and what must hold then."""

from typing import Final

#: How long Delta may take to have the whole history of an act, on a machine that does much else.
HISTORY_TIMEOUT_S: Final = 600.0
