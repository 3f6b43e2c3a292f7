"""The pure core: bytes in, effects out; no clock, no randomness, no IO."""
