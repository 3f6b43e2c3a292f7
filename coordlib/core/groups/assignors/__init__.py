"""How partitions are divided: Kafka's assignors for classic groups, and the server's own."""
