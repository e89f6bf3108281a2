"""How the port classifies errors of the libraries."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import pytest

from clonos_py.connectors.kafka import python_client
from clonos_py.connectors.kafka.port import Failure

errors: Any = import_module("kafka.errors")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.RequestTimedOutError(), Failure.AWAY),
        (errors.UnknownError(), Failure.AWAY),
        (errors.KafkaError(f"Could not execute: {errors.RequestTimedOutError('after 9999 ms')}"), Failure.AWAY),
        (errors.KafkaError("Could not execute: [Error 47] InvalidProducerEpochError"), Failure.FENCED),
        (errors.ProducerFencedError(), Failure.FENCED),
        (errors.KafkaError("Could not execute: [Error 53] TransactionalIdAuthorizationFailedError"), Failure.REFUSED),
        (errors.MessageSizeTooLargeError(), Failure.REFUSED),
    ],
)
def test_an_error_of_kafka_python_is_classified_by_its_kind_or_by_the_error_it_names(error: Any, kind: Failure) -> None:
    assert python_client.failure(error).kind is kind


def test_a_timeout_of_the_last_attempt_does_not_hide_an_earlier_reason() -> None:
    """A broker that refuses a password may close the connection, again and again, and the last attempt times out."""
    reasons = python_client._BackgroundErrors()
    logger = logging.getLogger("attempts of a test")
    logger.propagate = False
    logger.addHandler(reasons)
    timed_out = errors.RequestTimedOutError("Request timed out after 142 ms")
    logger.warning("failed: %s", timed_out)
    assert reasons.last is timed_out
    closed = errors.KafkaConnectionError("socket disconnected")
    for reason in (closed, timed_out):
        logger.warning("failed: %s", reason)
    assert reasons.last is closed
    refused = errors.SaslAuthenticationFailedError("no")
    for reason in (refused, closed, timed_out):
        logger.warning("failed: %s", reason)
    assert reasons.last is refused
