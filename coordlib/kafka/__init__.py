"""The one place that opens Kafka clients: their options, topics, compacted logs."""
