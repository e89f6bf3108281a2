"""What is said of errors of an object store, by the text of its client."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from clonos_py.checkpoint.object_errors import explained
from clonos_py.model.errors import CheckpointError, StorageUnavailableError, UnreadableCheckpointError
from clonos_py.object_store.problems import understood

CLIENT = "Generic S3 error: Error performing {} in 3.99s, after 10 retries, max_retries: 10, retry_timeout: 4s  - {}"
DEBUG = '\n\nDebug source:\nGeneric {{\n    store: "S3",\n    inner: {}\n}}'
REFUSED = 'Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }'
UNKNOWN_HOST = 'Custom { kind: Uncategorized, error: "failed to lookup address information: Name not known" }'


def said(request: str, answer: str, debug: str = "") -> str:
    return CLIENT.format(request, answer) + DEBUG.format(debug)


def status(code: int, body: str = "") -> str:
    return f"Server returned non-2xx status code: {code} Words: {body}"


TEXTS: dict[str, tuple[str, str, type[CheckpointError]]] = {
    "refused connection": (
        said("PUT http://127.0.0.1:9/b/x", "HTTP error: error sending request", REFUSED),
        "s3://b/x: the store at http://127.0.0.1:9 does not answer (Connection refused)",
        StorageUnavailableError,
    ),
    "unknown host": (
        said("list request: Error performing GET https://host.invalid/b?x=1", "HTTP error: error", UNKNOWN_HOST),
        "s3://b/x: the store at https://host.invalid does not answer (failed to lookup address information: Name not "
        "known)",
        StorageUnavailableError,
    ),
    "no answer": (
        said("PUT https://s3.eu.amazonaws.com/b/x", "HTTP error: error sending request", "kind: Timeout"),
        "s3://b/x: the store at https://s3.eu.amazonaws.com does not answer (no answer in time)",
        StorageUnavailableError,
    ),
    "busy": (
        said("GET https://host/b/x", status(503, "<Error><Code>SlowDown</Code><Message>Slow\ndown</Message></Error>")),
        "s3://b/x: the store at https://host does not answer (status 503, SlowDown: Slow down)",
        StorageUnavailableError,
    ),
    "no role of the machine": (
        said("PUT http://169.254.169.254/latest/api/token", "HTTP error: error sending request", "TimedOut"),
        "s3://b/x: the machine has no credentials for it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (no answer "
        "in time)",
        StorageUnavailableError,
    ),
    "http where it is not allowed": (
        said("PUT http://host/b/x", "HTTP error: builder error", "kind: Builder"),
        "s3://b/x: the checkpoint folder does not work (Generic S3 error: ",
        CheckpointError,
    ),
    "expired credentials": (
        said("GET http://host/b/x", status(400, "<Code>ExpiredToken</Code><Message>The token has expired.</Message>")),
        "s3://b/x: access is refused (status 400, ExpiredToken: The token has expired.): check AWS_ACCESS_KEY_ID",
        CheckpointError,
    ),
    "another answer": (
        said("PUT http://host/b/x", status(400, "<Code>Strange</Code>")),
        "s3://b/x: the checkpoint folder does not work (status 400, Strange)",
        CheckpointError,
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_an_error_is_one_line_with_its_cause(name: str) -> None:
    text, line, kind = TEXTS[name]
    found = explained(understood("s3://b/x", GenericError(text)), reads=False)
    assert type(found) is kind
    assert str(found).startswith(line)
    assert "\n" not in str(found)


def test_what_cannot_be_read_is_unreadable() -> None:
    found = explained(understood("s3://b/x", GenericError(said("GET http://host/b/x", status(400)))), reads=True)
    assert type(found) is UnreadableCheckpointError


@pytest.mark.parametrize(
    ("place", "variables"),
    [
        ("s3://b/x", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("gs://b/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://b/x", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
        ("abfs://b@a.dfs.core.windows.net/x", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_refused_credentials_are_those_of_the_store(place: str, variables: str) -> None:
    found = explained(understood(place, PermissionDeniedError("no")), reads=False)
    assert f"{place}: access is refused (no): check {variables}, and that they may read" in str(found)
