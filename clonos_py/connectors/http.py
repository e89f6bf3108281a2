"""The HTTP client behind ``ctx.http``: keeps connections alive, follows no redirects, retries nothing by itself."""

from __future__ import annotations

from typing import Any

import httpx

from clonos_py.model.errors import ServiceError
from clonos_py.services.http import Request


class HttpxClient:
    """Sends requests over pooled connections. One per task, used by one thread."""

    def __init__(self) -> None:
        self._client = httpx.Client(follow_redirects=False, timeout=None, trust_env=True)

    def send(self, request: Request) -> dict[str, Any]:
        """The answer as plain data. Raises ServiceError if none came: refused, cut off, too late."""
        try:
            answer = self._client.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.content or None,
                timeout=request.timeout_us / 1_000_000,
            )
        except httpx.TimeoutException as error:
            waited = request.timeout_us / 1_000_000
            raise ServiceError(f"{request.method} {request.url}: no answer within {waited:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ServiceError(f"{request.method} {request.url}: {type(error).__name__}: {error}") from error
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return {"status": answer.status_code, "headers": headers, "content": answer.content}

    def close(self) -> None:
        self._client.close()
