"""The results of a process function that are not emitted yet, by record class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.model.errors import UserCodeError, shown
from clonos_py.model.record import Record, schema_of
from clonos_py.model.record_codec import SLICE_ROWS, FieldError, encode
from clonos_py.operators.own_values import changing_fields, own_record


class ProcessResults:
    """Collects results. Records of class ``outputs[i]`` go to port i."""

    def __init__(self, process: str, outputs: Sequence[type[Record]]) -> None:
        self._process = process
        self._ports = {output: port for port, output in enumerate(outputs)}
        self._results: list[list[Any]] = [[] for _ in outputs]
        self._copied = [bool(changing_fields(output)) for output in outputs]

    def take(self, given: Any) -> None:
        """Adds the result of a call: None, a record, or any number of records. A list in a record is taken as it is
        when the function gives the record: it may be state, which changes later. Raises UserCodeError for other
        types."""
        if given is None:
            return
        for result in [given] if isinstance(given, Record) else given:
            port = self._ports.get(type(result))
            if port is None:
                known = ", ".join(output.__name__ for output in self._ports)
                raise UserCodeError(f"{self._process} gave {shown(result)}, which is not one of its outputs: {known}")
            self._results[port].append(own_record(result) if self._copied[port] else result)

    @property
    def counts(self) -> list[int]:
        """The number of results by port."""
        return [len(results) for results in self._results]

    def truncate(self, counts: Sequence[int]) -> None:
        """Drops results beyond these counts by port."""
        for results, count in zip(self._results, counts, strict=True):
            del results[count:]

    def check(self, counts: Sequence[int]) -> None:
        """Raises FieldError if a result beyond these counts does not fit its schema."""
        for (output, port), count in zip(self._ports.items(), counts, strict=True):
            if len(self._results[port]) > count:
                encode(self._results[port][count:], schema_of(output))

    def batches(self, operator: str) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Removes and returns all results, as batches with their ports."""
        for output, port in self._ports.items():
            results, self._results[port] = self._results[port], []
            for start in range(0, len(results), SLICE_ROWS):
                yield _encoded(results[start : start + SLICE_ROWS], output, operator), port


def _encoded(results: list[Any], output: type[Record], operator: str) -> pa.RecordBatch:
    try:
        return encode(results, schema_of(output))
    except FieldError as error:
        raise UserCodeError(f"operator {operator!r} gave {shown(results[error.row])}: {error}") from error
