"""The one place that knows how to reach Kafka: options of clients, topics, compacted logs."""
