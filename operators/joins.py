"""The joins."""

from clonos_py.operators.history_join import HistoryJoin
from clonos_py.operators.version_join import VersionJoin
from clonos_py.operators.window_join import WindowJoin

__all__ = ["HistoryJoin", "VersionJoin", "WindowJoin"]
