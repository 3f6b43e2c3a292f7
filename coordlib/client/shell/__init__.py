"""What turns signals and steps into Kafka records: transport, reading, settings."""
