"""A member's life as a pure machine: signals in, steps out; no clock and no network."""
