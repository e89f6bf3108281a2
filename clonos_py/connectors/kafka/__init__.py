"""Kafka: sources, sinks and the clients that they use.

``client`` is the interface to a client library; ``python_client`` (kafka-python) and ``fast_client`` (confluent-kafka)
implement it; ``library`` is what they share.
"""
