"""Real Kafka brokers, failures to inject into them, and jobs that read and write topics."""
