"""Real brokers, what can be done to them, and jobs from topic to topic."""
