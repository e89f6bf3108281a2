"""Secrets, which appear in no plan and no log: processes read them where they are used."""

from __future__ import annotations

import os
from dataclasses import dataclass

from clonos_py.model.errors import GraphError, SettingError


@dataclass(frozen=True)
class Secret:
    """A reference to a secret, so that no plan and no log has the secret itself. ``env``: the name of an environment
    variable; ``file``: the path of a file that has only the secret. Each process that connects reads it."""

    env: str | None = None
    file: str | None = None

    def __post_init__(self) -> None:
        if (self.env is None) == (self.file is None):
            raise GraphError("a Secret is either in the environment or in a file: give env= or file=")

    def read(self) -> str:
        """Reads the secret. Raises SettingError if it is missing."""
        if self.env is not None:
            found = os.environ.get(self.env)
            if found is None:
                raise SettingError(f"the environment variable {self.env} is not set: set it where the tasks run")
            return found
        try:
            with open(self.file or "", encoding="utf-8") as file:
                return file.read().strip()
        except OSError as problem:
            raise SettingError(f"the secret {self.file} cannot be read: {problem.strerror}") from None


def refuse_plain_secrets(owner: str, **given: object) -> None:
    """Raises GraphError for a secret that was written as plain text."""
    for name, value in given.items():
        if isinstance(value, str):
            raise GraphError(
                f"{owner}: {name} would be plain text in the plan: give Secret(env=...) or Secret(file=...)"
            )


def secret_value(given: str | Secret | None) -> str | None:
    """The value of a plain text or a secret. Raises SettingError if a secret is missing."""
    return given.read() if isinstance(given, Secret) else given
