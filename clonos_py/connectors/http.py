"""The HTTP client behind ``ctx.http``. It pools connections, follows no redirects and never retries."""

from __future__ import annotations

import time
from typing import Any

import httpx

from clonos_py.model.errors import ServiceError, type_and_text
from clonos_py.services.http import Request

ANSWER_BYTES_MAX = 64 << 20
"""Larger responses are refused, as all responses in transit are held in memory."""


class HttpxClient:
    """Sends requests over pooled connections. There is one per task, shared by its threads."""

    def __init__(self) -> None:
        pool = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self._client = httpx.Client(follow_redirects=False, timeout=None, trust_env=True, limits=pool)

    def send(self, request: Request) -> dict[str, Any]:
        """The response as plain data. Raises ServiceError if refused, cut off, timed out or too large."""
        if request.after_us:
            time.sleep(request.after_us / 1_000_000)
        try:
            return self._exchange(request)
        except httpx.TimeoutException as error:
            waited = request.timeout_us / 1_000_000
            raise ServiceError(f"{request.method} {request.url}: no answer within {waited:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ServiceError(f"{request.method} {request.url}: {type_and_text(error)}") from error

    def _exchange(self, request: Request) -> dict[str, Any]:
        """Stops reading when the response gets too large."""
        with self._client.stream(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.content or None,
            timeout=request.timeout_us / 1_000_000,
        ) as answer:
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > ANSWER_BYTES_MAX:
                    raise ServiceError(
                        f"{request.method} {request.url}: the answer has more than {ANSWER_BYTES_MAX >> 20} MiB: "
                        "ask for less of it, or for a reference to it"
                    )
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return {"status": answer.status_code, "headers": headers, "content": bytes(content)}

    def close(self) -> None:
        self._client.close()
