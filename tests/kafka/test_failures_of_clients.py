"""How clients classify errors of their libraries."""

from __future__ import annotations

import socket
import ssl
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import KafkaError

from clonos_py.connectors.kafka import python_client
from clonos_py.connectors.kafka.client import ClusterConnection, Failure, KafkaFailure
from clonos_py.connectors.kafka.fast_client import FastClient
from clonos_py.connectors.kafka.library import Cause, Failures
from tests.waiting import attempts

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
    failures = Failures(KeyError, lambda problem: KafkaFailure(Failure.AWAY, "no answer"))

    def failed() -> tuple[Failure, str]:
        with pytest.raises(KafkaFailure) as raised, failures.raised("request"):
            raise KeyError
        return raised.value.kind, str(raised.value)

    assert failed() == (Failure.AWAY, "request: no answer")
    for cause in (Cause.TIMED_OUT, Cause.LOST, Cause.REFUSED):
        for later in (cause, Cause.TIMED_OUT):
            failures.note(later, later.name)
        kind = Failure.REFUSED if cause is Cause.REFUSED else Failure.AWAY
        assert failed() == (kind, f"request: no answer: {cause.name}")


def _handshake(problem: Exception) -> Any:
    """As the library raises it, while it handles the problem."""
    found = errors.KafkaConnectionError("Handshake failed")
    found.__context__ = problem
    return found


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (errors.SaslAuthenticationFailedError("no"), Cause.REFUSED),
        (errors.UnsupportedSaslMechanismError(), Cause.REFUSED),
        (_handshake(ssl.SSLCertVerificationError("unknown issuer")), Cause.REFUSED),
        (errors.KafkaConnectionError(ssl.SSLError("alert unknown ca")), Cause.REFUSED),
        (_handshake(ssl.SSLEOFError("ended")), Cause.LOST),
        (_handshake(ConnectionResetError("reset")), Cause.LOST),
        (errors.KafkaConnectionError("socket disconnected"), Cause.LOST),
        (errors.RequestTimedOutError("after 142 ms"), Cause.TIMED_OUT),
    ],
)
def test_a_failed_connection_of_kafka_python_has_a_cause(problem: Exception, cause: Cause) -> None:
    assert python_client._cause(problem)[0] is cause


@pytest.mark.parametrize(
    ("code", "text", "cause"),
    [
        (KafkaError._AUTHENTICATION, "no", Cause.REFUSED),
        (KafkaError._SSL, "certificate verify failed", Cause.REFUSED),
        (KafkaError._TRANSPORT, "ssl/tls alert bad certificate: SSL alert number 42", Cause.REFUSED),
        (KafkaError._TRANSPORT, "Disconnected", Cause.LOST),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", Cause.TIMED_OUT),
    ],
)
def test_a_failed_connection_of_librdkafka_has_a_cause(code: int, text: str, cause: Cause) -> None:
    client = FastClient(ClusterConnection("127.0.0.1:1"))
    client._on_error(KafkaError(code, text))
    assert list(client._failures._causes) == [cause]


def test_an_answer_before_the_end_of_a_connection_is_received_by_kafka_python() -> None:
    """A broker closes the connection right after it has refused a user. The library alone drops the answer then."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        net = python_client.compat.NetworkSelector()
        failures = Failures(errors.KafkaError, python_client.failure)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        connections = python_client._Connections(net, failures, bootstrap_servers=[address])
        transport = net.run(connections._build_transport, connections.cluster.bootstrap_brokers()[0])
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"refused")
        received: list[tuple[bytes, Exception | None]] = []
        for _ in attempts():
            received.append(transport._sock_recv())
            if received[-1][1] is not None:
                break
    assert next(answer for answer in received if any(answer)) == (b"refused", None)
    assert isinstance(received[-1][1], errors.KafkaConnectionError)
    connections.close()
    net.close()
