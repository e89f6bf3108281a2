"""A sink that posts rows to a server by HTTP, once for servers that heed idempotency keys.

The rows of a checkpoint are posted when it is complete. A commit is repeated after a failure; so each request has a key
made of what identifies the commit, and of the place of its first row, which is the same then.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.connectors.http import HttpxClient
from clonos_py.connectors.http_address import HttpAddress
from clonos_py.connectors.local_paths import LocalPath, local_path
from clonos_py.connectors.ndjson import encoded
from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
from clonos_py.connectors.row_files import check_columns
from clonos_py.connectors.secrets import Secret
from clonos_py.model.errors import GraphError, ServiceError, SinkError
from clonos_py.model.operators import Sink
from clonos_py.model.times import Duration, micros
from clonos_py.services.http import IDEMPOTENCY_KEY, TRANSIENT, Request

_RETRIED = TRANSIENT | {409}
"""409: the server still works on a request with this key, from before a failure."""
_BACKOFF_S, _BACKOFF_S_MAX = 0.1, 30.0
_SHOWN_CHARS = 200


class WebhookSink(TransactionalSink):
    """Posts rows as JSON to ``url`` when their checkpoint is complete: arrays of at most ``batch`` rows or, with
    ``batch=None``, one object each. Requests of a task come one after the other, in the order of the rows.

    A request is sent again after a failure, with the same header ``Idempotency-Key``: made of the job's lineage, the
    sink, its task, the checkpoint and the place of the row. A server that heeds it has each row once; others may get
    rows of the last checkpoint again. A ``Table`` has a column ``_change`` (``insert``, ``update``, ``delete``).

    ``token`` is sent as a bearer token, ``headers`` are further headers. ``rate``: at most so many requests a second
    from each task. Without an answer within ``timeout``, and after 408, 409, 425, 429, 500 and 502 to 504, a request is
    tried again, after a time that doubles up to 30 s, or the one that ``Retry-After`` names, until ``away`` has passed.
    Then, and after any other answer than 2xx, the job stops with a SinkError. With ``dead_letters``, a folder, requests
    that are answered by another 4xx are left out, and kept there: a file for each, with the answer and the rows.
    """

    upserts = True
    deletes = True

    def __init__(
        self,
        url: str,
        *,
        batch: int | None = 100,
        token: Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        rate: float | None = None,
        timeout: Duration = "30s",
        away: Duration = "5m",
        dead_letters: LocalPath | None = None,
    ) -> None:
        address = HttpAddress.of("WebhookSink", url, token, headers)
        if batch is not None and batch < 1:
            raise GraphError(f"WebhookSink: batch={batch}: give at least 1, or None for one object each")
        if rate is not None and not rate > 0:
            raise GraphError(f"WebhookSink: rate={rate}: give requests per second, more than 0")
        folder = None if dead_letters is None else local_path("WebhookSink", dead_letters)
        self._target = _Target(address, batch, rate, micros(timeout), micros(away) / 1e6, folder)
        self.place = url

    def create(self, schema: pa.Schema) -> Sink:
        check_columns("WebhookSink", "jsonl", schema)
        return super().create(schema)

    def open(self, schema: pa.Schema) -> RowCommitter:
        return WebhookCommitter(self._target)


@dataclass(frozen=True)
class _Target:
    """Where and how rows are posted."""

    address: HttpAddress
    batch: int | None
    rate: float | None
    timeout_us: int
    away_s: float
    dead_letters: str | None

    def request(self, key: str, content: bytes) -> Request:
        headers = self.address.request_headers() | {"Content-Type": "application/json", IDEMPOTENCY_KEY: key}
        return Request("POST", self.address.url, headers, content, self.timeout_us)


class WebhookCommitter(RowCommitter):
    """Posts the rows of one task. It goes on behind the last request that was answered, if a commit is repeated in the
    same process."""

    def __init__(self, target: _Target) -> None:
        self._target = target
        self._client = HttpxClient()
        self._next_s = 0.0
        self._done: tuple[CommitId | None, int] = (None, 0)

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        last, done = self._done
        for first, content in self._bodies(rows):
            if last != commit or first >= done:
                key = hashlib.blake2b(
                    f"{commit.owner}/{commit.checkpoint}/{first}".encode(), digest_size=16
                ).hexdigest()
                self._post(self._target.request(key, content), key)
                self._done = commit, first + 1

    def close(self) -> None:
        self._client.close()

    def _bodies(self, rows: pa.Table) -> Iterator[tuple[int, bytes]]:
        """The content of each request, with the place of its first row."""
        batch = self._target.batch
        try:
            lines = bytes(encoded(rows)).splitlines()
        except pa.ArrowInvalid as problem:
            raise SinkError(f"{self._target.address.url}: the rows have values that JSON does not: {problem}") from None
        if batch is None:
            yield from enumerate(lines)
            return
        for first in range(0, len(lines), batch):
            yield first, b"[" + b",".join(lines[first : first + batch]) + b"]"

    def _post(self, request: Request, key: str) -> None:
        """Raises SinkError."""
        until_s, wait_s = time.monotonic() + self._target.away_s, _BACKOFF_S
        while True:
            self._keep_the_rate()
            answer, problem = self._answered(request)
            if answer is not None:
                status: int = answer["status"]
                if 200 <= status < 300:
                    return
                shown = answer["content"].decode("utf-8", "replace")[:_SHOWN_CHARS]
                problem = f"POST {request.url} was answered {status}: {shown}"
                if status not in _RETRIED:
                    if 400 <= status < 500 and self._target.dead_letters is not None:
                        self._put_aside(self._target.dead_letters, key, status, shown, request.content)
                        return
                    raise SinkError(
                        f"{problem}; correct the rows or the request, or leave such rows out by dead_letters="
                    )
            pause_s = max(wait_s, _retry_after_s(answer))
            if time.monotonic() + pause_s > until_s:
                raise SinkError(f"{problem}; it was tried again for {self._target.away_s:g} s (away=)")
            time.sleep(pause_s)
            wait_s = min(2 * wait_s, _BACKOFF_S_MAX)

    def _answered(self, request: Request) -> tuple[dict[str, Any] | None, str]:
        """The answer, or why there is none."""
        try:
            return self._client.send(request), ""
        except ServiceError as problem:
            return None, str(problem)

    def _keep_the_rate(self) -> None:
        if self._target.rate is not None:
            now = time.monotonic()
            time.sleep(max(0.0, self._next_s - now))
            self._next_s = max(now, self._next_s) + 1 / self._target.rate

    def _put_aside(self, folder: str, key: str, status: int, answer: str, rows: bytes) -> None:
        """Keeps a request that the server has refused; under the same name, if the commit is repeated."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{key}.json")
        with open(f"{path}.{os.getpid()}", "wb") as file:
            file.write(msgspec.json.encode({"status": status, "answer": answer, "rows": msgspec.Raw(rows)}))
        os.replace(file.name, path)


def _retry_after_s(answer: Mapping[str, Any] | None) -> float:
    """The seconds that a server asks to wait, as a number or as the time when they are over."""
    given = "" if answer is None else answer["headers"].get("retry-after", "")
    if given.isascii() and given.isdigit():
        return float(given)
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
