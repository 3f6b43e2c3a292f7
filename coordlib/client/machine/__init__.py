"""A member's life as a pure state machine: signals in, steps out; no clock and no network."""
