"""The address of a server, and what each request to it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clonos_py.connectors.secrets import Secret, refuse_plain_secrets, secret_value
from clonos_py.model.errors import GraphError


@dataclass(frozen=True)
class HttpAddress:
    """``token``: a bearer token; ``headers``: further headers."""

    url: str
    token: Secret | None
    headers: Mapping[str, str | Secret]

    @staticmethod
    def of(
        owner: str,
        url: str,
        token: Secret | None,
        headers: Mapping[str, str | Secret] | None,
        schemes: Sequence[str] = ("https", "http"),
    ) -> HttpAddress:
        """Raises GraphError for what is no address, and for a token in plain text. ``owner`` is named in errors."""
        refuse_plain_secrets(owner, token=token)
        if not url.startswith(tuple(f"{scheme}://" for scheme in schemes)):
            raise GraphError(f"{owner}: {url!r} is no address: write {schemes[0]}://host/path")
        return HttpAddress(url, token, dict(headers or {}))

    def request_headers(self) -> dict[str, str]:
        """Raises SettingError if a secret is missing."""
        found = {name: secret_value(value) or "" for name, value in self.headers.items()}
        return found if self.token is None else found | {"Authorization": f"Bearer {secret_value(self.token)}"}
