"""Submits a query to a Flink cluster, or collects the results of queries, in the environment of Flink.

``python flink_job.py SPEC``: ``SPEC`` is a JSON file with ``config``, ``statements`` (SQL to run first),
``python_functions`` and

- either ``query`` and ``sink`` (options of a table): the job is submitted, and its id is printed;
- or ``collect`` (queries by name) and ``out``: each query runs in this process to the end of its input, and its result
  is written to ``out/NAME.parquet``.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
from pyflink.common import Configuration  # pyright: ignore[reportMissingImports]
from pyflink.table import (  # pyright: ignore[reportMissingImports]
    DataTypes,
    EnvironmentSettings,
    TableDescriptor,
    TableEnvironment,
)
from pyflink.table.udf import udf  # pyright: ignore[reportMissingImports]


def main(spec: dict[str, Any]) -> None:
    """Carries out the spec: sets up the tables, then submits or collects."""
    config = Configuration()
    for key, value in spec["config"].items():
        config.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
    tables = TableEnvironment.create(settings)
    for statement in spec["statements"]:
        tables.execute_sql(statement)
    if spec["python_functions"]:
        add_python_functions(tables)
    if "collect" in spec:
        for name, query in spec["collect"].items():
            print(name, flush=True)
            collect(tables, query, Path(spec["out"]) / f"{name}.parquet")
        return
    job = tables.sql_query(spec["query"]).execute_insert(descriptor(spec["sink"])).get_job_client()
    print(job.get_job_id(), flush=True)


def descriptor(sink: dict[str, Any]) -> Any:
    """The descriptor of a sink table, which takes its columns from the query."""
    builder = TableDescriptor.for_connector(sink["connector"])
    if "format" in sink:
        builder.format(sink["format"])
    if "partitioned_by" in sink:
        builder.partitioned_by(*sink["partitioned_by"])
    for key, value in sink.get("options", {}).items():
        builder.option(key, value)
    return builder.build()


def collect(tables: Any, query: str, path: Path) -> None:
    """Writes the final result of a query, after all updates."""
    rows = pyarrow.Table.from_pandas(tables.sql_query(query).to_pandas(), preserve_index=False)
    parquet.write_table(rows, path)


def add_python_functions(tables: Any) -> None:
    """Registers the Python functions that the queries of PyFlink call for each row."""

    @udf(result_type=DataTypes.DECIMAL(23, 3))  # type: ignore[untyped-decorator]
    def py_euros(price: int) -> Decimal:
        return price * Decimal("0.908")

    @udf(result_type=DataTypes.BOOLEAN())  # type: ignore[untyped-decorator]
    def py_is_123rd(auction: int) -> bool:
        return auction % 123 == 0

    @udf(result_type=DataTypes.BOOLEAN())  # type: ignore[untyped-decorator]
    def py_is_local(state: str) -> bool:
        return state in ("OR", "ID", "CA")

    @udf(result_type=DataTypes.BIGINT())  # type: ignore[untyped-decorator]
    def py_count_char(text: str, character: str) -> int:
        return text.count(character)

    tables.create_temporary_function("py_euros", py_euros)
    tables.create_temporary_function("py_is_123rd", py_is_123rd)
    tables.create_temporary_function("py_is_local", py_is_local)
    tables.create_temporary_function("py_count_char", py_count_char)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
