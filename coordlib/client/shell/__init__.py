"""The shell around a member's state machine: transport, reading, settings."""
