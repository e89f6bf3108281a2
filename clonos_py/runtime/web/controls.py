"""What those who have the token may ask of a run through its web server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Rescale = Callable[[int | None, Mapping[str, int]], None]


class JobControls(NamedTuple):
    """Functions for requests, None for what a run of its kind cannot do. They raise ClonosError for what is refused.

    ``stop`` has the run stop with a last checkpoint. ``savepoint`` keeps the last complete checkpoint under a name, and
    returns its number. ``rescale`` begins a change of parallelism, of all operators that ask for none and by operator.
    """

    stop: Callable[[], None]
    savepoint: Callable[[str], int] | None = None
    rescale: Rescale | None = None

    @property
    def offered(self) -> list[str]:
        """The names of what it can do."""
        return [name for name, control in self._asdict().items() if control is not None]
