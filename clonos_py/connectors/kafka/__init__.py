"""Kafka: sources, sinks and the clients that they use.

``port`` says what is asked of a client library; ``python_client`` (kafka-python) and ``fast_client`` (confluent-kafka)
do it.
"""
