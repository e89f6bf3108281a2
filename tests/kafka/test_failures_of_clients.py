"""What errors of the libraries are to the port."""

from __future__ import annotations

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
def test_an_error_of_kafka_python_is_told_by_its_kind_or_by_that_which_it_names(error: Any, kind: Failure) -> None:
    assert python_client.failure(error).kind is kind
