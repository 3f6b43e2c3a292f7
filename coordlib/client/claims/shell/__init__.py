"""Around a consumer's state machine: Kafka's clients, and the threads that serve them."""
