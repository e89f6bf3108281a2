"""clonos-py: a stream processor with exactly-once local recovery by columnar causal logging.

Everything that a job is written with comes from here; connectors come from ``clonos_py.connectors``. Names are imported
when they are first asked for, so that the rooms below, and ``clonos --help``, do not load what they do not use.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from clonos_py.model import allocation

if TYPE_CHECKING:
    from clonos_py.dsl.aggregates import aggregate_by as aggregate_by
    from clonos_py.dsl.aggregates import count as count
    from clonos_py.dsl.expressions import Expr as Expr
    from clonos_py.dsl.expressions import apply as apply
    from clonos_py.dsl.expressions import coalesce as coalesce
    from clonos_py.dsl.expressions import col as col
    from clonos_py.dsl.expressions import greatest as greatest
    from clonos_py.dsl.expressions import least as least
    from clonos_py.dsl.expressions import lit as lit
    from clonos_py.dsl.expressions import when as when
    from clonos_py.dsl.job import Job as Job
    from clonos_py.dsl.replaying import replay as replay
    from clonos_py.dsl.streams import AssignedStream as AssignedStream
    from clonos_py.dsl.streams import ConnectedStreams as ConnectedStreams
    from clonos_py.dsl.streams import CountedStream as CountedStream
    from clonos_py.dsl.streams import EmittingStream as EmittingStream
    from clonos_py.dsl.streams import KeyedStream as KeyedStream
    from clonos_py.dsl.streams import OverStream as OverStream
    from clonos_py.dsl.streams import Stream as Stream
    from clonos_py.dsl.streams import Table as Table
    from clonos_py.dsl.streams import WindowedStream as WindowedStream
    from clonos_py.dsl.windows import as_of as as_of
    from clonos_py.dsl.windows import assign as assign
    from clonos_py.dsl.windows import at_close as at_close
    from clonos_py.dsl.windows import between as between
    from clonos_py.dsl.windows import counted as counted
    from clonos_py.dsl.windows import cumulative as cumulative
    from clonos_py.dsl.windows import every as every
    from clonos_py.dsl.windows import forever as forever
    from clonos_py.dsl.windows import hopping as hopping
    from clonos_py.dsl.windows import last as last
    from clonos_py.dsl.windows import on_change as on_change
    from clonos_py.dsl.windows import session as session
    from clonos_py.dsl.windows import tumbling as tumbling
    from clonos_py.dsl.windows import until as until
    from clonos_py.model.aggregates import UserAggregate as UserAggregate
    from clonos_py.model.errors import ClonosError as ClonosError
    from clonos_py.model.errors import GraphError as GraphError
    from clonos_py.model.errors import ServiceError as ServiceError
    from clonos_py.model.errors import SettingError as SettingError
    from clonos_py.model.errors import UserCodeError as UserCodeError
    from clonos_py.model.record import DeadLetter as DeadLetter
    from clonos_py.model.record import Instant as Instant
    from clonos_py.model.record import Money as Money
    from clonos_py.model.record import Record as Record
    from clonos_py.model.record import at as at
    from clonos_py.model.time_formats import Epoch as Epoch
    from clonos_py.model.time_formats import Iso8601 as Iso8601
    from clonos_py.model.times import micros as micros
    from clonos_py.model.user_functions import deterministic as deterministic
    from clonos_py.operators.process import BroadcastProcess as BroadcastProcess
    from clonos_py.operators.process import CoProcess as CoProcess
    from clonos_py.operators.process import ListState as ListState
    from clonos_py.operators.process import MapState as MapState
    from clonos_py.operators.process import Process as Process
    from clonos_py.operators.process import broadcast_state as broadcast_state
    from clonos_py.operators.process import event_timer as event_timer
    from clonos_py.operators.process import list_state as list_state
    from clonos_py.operators.process import map_state as map_state
    from clonos_py.operators.process import processing_timer as processing_timer
    from clonos_py.operators.process import state as state
    from clonos_py.services.async_context import AsyncContext as AsyncContext
    from clonos_py.services.context import Context as Context
    from clonos_py.services.definition import service as service
    from clonos_py.services.open_context import OpenContext as OpenContext
    from clonos_py.stored_state.reading import StoredState as StoredState
    from clonos_py.stored_state.reading import read_state as read_state

allocation.prepare(os.environ)

_HOMES = {
    "clonos_py.dsl.aggregates": ("aggregate_by", "count"),
    "clonos_py.dsl.expressions": ("Expr", "apply", "coalesce", "col", "greatest", "least", "lit", "when"),
    "clonos_py.dsl.job": ("Job",),
    "clonos_py.dsl.replaying": ("replay",),
    "clonos_py.dsl.streams": (
        "AssignedStream",
        "ConnectedStreams",
        "CountedStream",
        "EmittingStream",
        "KeyedStream",
        "OverStream",
        "Stream",
        "Table",
        "WindowedStream",
    ),
    "clonos_py.dsl.windows": (
        "as_of",
        "assign",
        "at_close",
        "between",
        "counted",
        "cumulative",
        "every",
        "forever",
        "hopping",
        "last",
        "on_change",
        "session",
        "tumbling",
        "until",
    ),
    "clonos_py.model.aggregates": ("UserAggregate",),
    "clonos_py.model.errors": ("ClonosError", "GraphError", "ServiceError", "SettingError", "UserCodeError"),
    "clonos_py.model.record": ("DeadLetter", "Instant", "Money", "Record", "at"),
    "clonos_py.model.time_formats": ("Epoch", "Iso8601"),
    "clonos_py.model.times": ("micros",),
    "clonos_py.model.user_functions": ("deterministic",),
    "clonos_py.operators.process": (
        "BroadcastProcess",
        "CoProcess",
        "ListState",
        "MapState",
        "Process",
        "broadcast_state",
        "event_timer",
        "list_state",
        "map_state",
        "processing_timer",
        "state",
    ),
    "clonos_py.services.async_context": ("AsyncContext",),
    "clonos_py.services.context": ("Context",),
    "clonos_py.services.definition": ("service",),
    "clonos_py.services.open_context": ("OpenContext",),
    "clonos_py.stored_state.reading": ("StoredState", "read_state"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AssignedStream",
    "AsyncContext",
    "BroadcastProcess",
    "ClonosError",
    "CoProcess",
    "ConnectedStreams",
    "Context",
    "CountedStream",
    "DeadLetter",
    "EmittingStream",
    "Epoch",
    "Expr",
    "GraphError",
    "Instant",
    "Iso8601",
    "Job",
    "KeyedStream",
    "ListState",
    "MapState",
    "Money",
    "OpenContext",
    "OverStream",
    "Process",
    "Record",
    "ServiceError",
    "SettingError",
    "StoredState",
    "Stream",
    "Table",
    "UserAggregate",
    "UserCodeError",
    "WindowedStream",
    "aggregate_by",
    "apply",
    "as_of",
    "assign",
    "at",
    "at_close",
    "between",
    "broadcast_state",
    "coalesce",
    "col",
    "count",
    "counted",
    "cumulative",
    "deterministic",
    "event_timer",
    "every",
    "forever",
    "greatest",
    "hopping",
    "last",
    "least",
    "list_state",
    "lit",
    "map_state",
    "micros",
    "on_change",
    "processing_timer",
    "read_state",
    "replay",
    "service",
    "session",
    "state",
    "tumbling",
    "until",
    "when",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
