"""What a run reports while it runs, and how."""

from __future__ import annotations

from enum import Enum


class LogLevel(Enum):
    """What a run reports while it runs, where no live view shows it."""

    INFO = "info"
    WARNING = "warning"
    OFF = "off"


class LogFormat(Enum):
    """The format of what a run reports while it runs."""

    PLAIN = "plain"
    JSON = "json"
