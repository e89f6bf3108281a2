"""Methods that users of other libraries look for, with what to write instead; and what a stream or a table shows of
itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

_COLUMNS_SHOWN = 6
_BY_KEY = "state and timers belong to keys: write .key_by(...).process(...)"
_PRINT = "write .sink(PrintSink()) and run the job, or job.preview(stream) to see its first rows"
_PRINT_TABLE = (
    "write .changes().sink(PrintSink()) and run the job, or job.preview(table.changes()) to see its first rows"
)
_GROUP = "write .key_by(...)"
_BEFORE = "write it before key_by"
_CHANGES = "a table is not a stream: write it before the aggregate, or write .changes() or .at_end() first"
_COUNTED = "write .window(counted(10)), or .window(counted(10, every=2))"
_RUN = "write job.run() or job.start()"
_AGGREGATES = {
    "sum": "write .aggregate(total=col(...).sum())", "count": "write .aggregate(n=count())",
    "agg": "write .aggregate(...)",
}  # fmt: skip
_SORT = "write .sort() for the order of event time, .top(n, by=...) for that of columns"
_IN_WINDOWS = {**_AGGREGATES, "reduce": "write .aggregate(...) with a UserAggregate"}
_FOLDS = "results are by key: write .key_by(...).{}(...)"
INSTEAD: dict[str, dict[str, str]] = {
    "Stream": {
        "process": _BY_KEY, **{name: _FOLDS.format(name) for name in ("reduce", "fold")},
        "connect": "both streams need a key: write a.key_by(...).connect(b.key_by(...))",
        "print": _PRINT, "show": _PRINT, "head": "write job.preview(stream)",
        "group_by": _GROUP, "groupby": _GROUP, "keyBy": _GROUP, "partition_by": _GROUP,
        "count_window": _COUNTED, "countWindow": _COUNTED, "countWindowAll": _COUNTED,
        "flatMap": "write .flat_map(...)", "where": "write .filter(...)", "with_column": "write .with_columns(...)",
        "drop": "write .select(...) with the columns that stay", "rename": "write .select(new=col('old'), ...)",
        "assign_timestamps_and_watermarks": "write .with_event_time(column, delay=...)",
        "deduplicate": "write .distinct(...)", "unique": "write .distinct(...)",
        **dict.fromkeys(("order_by", "sort_by"), _SORT),
        "sink_to": "write .sink(...)", "add_sink": "write .sink(...)", "write": "write .sink(...)",
        "catch": "only what calls a function can catch: write it right behind map, flat_map, filter or process",
        "with_late": "only windows have late rows: write it right behind .window(...).aggregate(...)",
        "run": _RUN, "execute": _RUN, "collect": "write .sink(MemorySink()), or job.preview(stream)",
    },
    "KeyedStream": {
        "count_window": _COUNTED, "countWindow": _COUNTED,
        **dict.fromkeys(("map", "flat_map", "filter", "select", "with_columns", "map_batches"), _BEFORE),
        **dict.fromkeys(("union", "distinct", "enrich", "lookup", "explode", "sample", "limit"), _BEFORE),
        "rolling": 'write .over(last("1h"))', "rolling_window": 'write .over(last("1h"))',
        "join": "a join takes its keys itself: write a.join(b, on=..., within=...)",
        **_AGGREGATES,
        "sink": "write it before key_by, or aggregate the rows first", "print": _PRINT,
    },
    "WindowedStream": {
        **_IN_WINDOWS, "process": "write .map_groups(function, returns=...)",
        "apply": "write .map_groups(function, returns=...)",
    },
    "AssignedStream": {
        **_IN_WINDOWS, "with_late": "late rows of windows of your own are counted only",
        "apply": "write .map_groups(function, returns=...)",
    },
    "EmittingStream": {
        **_AGGREGATES, "with_late": "late rows change the table; those that are too late are counted only",
    },
    "OverStream": {
        **_AGGREGATES, "with_columns": "write .aggregate(...): its rows have their columns, too",
    },
    "CountedStream": {
        **_IN_WINDOWS, "process": "write .key_by(...).process(...) with a state that counts",
        "apply": "write .aggregate(...) with a UserAggregate",
        "with_late": "rows of count windows are never late",
    },
    "Table": {
        **dict.fromkeys(("map", "flat_map", "process", "window"), _CHANGES),
        "print": _PRINT_TABLE, "show": _PRINT_TABLE, "to_stream": "write .changes()", "toStream": "write .changes()",
        "group_by": _GROUP,
    },
    "Job": {
        "execute": "write .run()", "add_source": "write .source(...)", "from_source": "write .source(...)",
        "read": "write .source(...)", "stop": "write run = job.start(), then run.stop()",
    },
}  # fmt: skip
"""By class and name. Subclasses have the names of their bases."""


class Helpful:
    """Says what to write instead of a method that does not exist."""

    if not TYPE_CHECKING:  # for type checkers these methods do not exist

        def __getattr__(self, name: str) -> object:
            kinds = type(self).__mro__
            missing = f"{type(self).__name__!r} object has no attribute {name!r}"
            instead = next(
                (INSTEAD[kind.__name__][name] for kind in kinds if name in INSTEAD.get(kind.__name__, {})), ""
            )
            raise AttributeError(f"{missing}: {instead}" if instead else missing, name=name, obj=self)


def shown(kind: object, schema: pa.Schema, name: str = "", keys: Sequence[str] = ()) -> str:
    """What a stream or a table shows of itself: ``<Stream 'orders': id int64, symbol string>``."""
    columns = [f"{field.name} {field.type}" for field in list(schema)[:_COLUMNS_SHOWN]]
    more = len(schema) - len(columns)
    named = f" {name!r}" * (name != "") + f" by {', '.join(keys)}" * (len(keys) > 0)
    return f"<{type(kind).__name__}{named}: {', '.join([*columns, *([f'{more} more'] if more > 0 else [])])}>"
