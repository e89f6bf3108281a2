"""Iceberg tables by catalog and name, and what errors of the library mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ValidationException,
    WaitingForLockException,
)
from pyiceberg.table import Table

from clonos_py.connectors.secrets import Secret, secret_value
from clonos_py.model.errors import ClonosError, SinkError, SourceError, one_line

_DRAWN = re.compile("[\u2500-\u257f\u274c\u2705]")
"""Lines of tables, and marks, in the texts of errors."""
_TEXT_MAX = 300
AGAIN = (CommitFailedException, CommitStateUnknownException, ValidationException, WaitingForLockException)
"""Another writer was faster, or it is unknown whether a commit has succeeded."""


class TableIdentifier(NamedTuple):
    """A table of a catalog. ``properties``: of the catalog, beside those of the environment and ``.pyiceberg.yaml``."""

    catalog: str
    properties: Mapping[str, str | Secret]
    name: str

    def __str__(self) -> str:
        return f"{self.catalog}: {self.name}"

    def load_catalog(self) -> Catalog:
        """Raises what the library does."""
        return load_catalog(self.catalog, **{name: secret_value(value) for name, value in self.properties.items()})

    def load(self) -> Table | None:
        """The table; None if there is none. Raises what the library does."""
        try:
            return self.load_catalog().load_table(self.name)
        except NoSuchTableError:
            return None


def reason(error: Exception) -> str:
    """What an error of the library says, in one line."""
    return one_line(_DRAWN.sub(" ", str(error)))[:_TEXT_MAX]


@contextmanager
def library_errors(kind: type[SourceError] | type[SinkError], what: str) -> Iterator[None]:
    """Turns errors of the library, which have no common class, into errors of ``kind``. Those that say that a commit
    may be tried again pass."""
    try:
        yield
    except (ClonosError, *AGAIN):
        raise
    except Exception as error:
        raise kind(f"{what} ({reason(error)})") from error
