"""A sink that reduces all rows to one number: equal for equal rows in any order, at any parallelism."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec
import pyarrow as pa

from clonos_py.columns.digest import MODULUS, digest
from clonos_py.connectors.row_files import named_errors
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.durable_folders import flush_folder, make_folder
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import OperatorContext, Output, Sink
from clonos_py.model.state import OperatorState

_SUFFIX = ".digest.json"


class DigestResult(msgspec.Struct, frozen=True):
    """The digest of one task's rows up to a checkpoint."""

    digest: int
    rows: int
    index: int
    parallelism: int
    checkpoint: int


class DigestSink(SinkDefinition):
    """Sums the 64-bit hashes of whole rows. ``prepare`` returns the result (``decode_result``). With a folder, each
    commit also writes it to ``OPERATOR-INDEX-CHECKPOINT.digest.json`` there and deletes the results of earlier
    checkpoints (``read_digest``). So a late commit of an earlier checkpoint overwrites nothing."""

    delivery = Delivery.TRANSACTIONAL

    def __init__(self, folder: str | None = None) -> None:
        self._folder = None if folder is None else os.path.abspath(folder)

    def create(self, schema: pa.Schema) -> Sink:
        return _Digester(self._folder)

    def on_trial(self, folder: str) -> DigestSink:
        return DigestSink(folder)


def decode_result(committable: bytes) -> DigestResult:
    """Decodes a result. Raises SinkError if the bytes are not one."""
    try:
        return msgspec.msgpack.decode(committable, type=DigestResult)
    except msgspec.DecodeError as error:
        raise SinkError(f"not a result of a digest sink: {error}") from error


def read_digest(folder: str) -> tuple[int, int]:
    """The digest and the number of rows over all tasks of the sink that wrote to this folder."""
    latest: dict[str, DigestResult] = {}
    with named_errors(folder):
        for name in sorted(os.listdir(folder)):
            if name.endswith(_SUFFIX):
                with open(os.path.join(folder, name), "rb") as file:
                    result = msgspec.json.decode(file.read(), type=DigestResult)
                owner = name.rpartition("-")[0]
                latest[owner] = max(result, latest.get(owner, result), key=lambda result: result.checkpoint)
    newest = max(latest.values(), key=lambda result: result.checkpoint, default=None)
    counted = [r for r in latest.values() if newest is not None and r.index < newest.parallelism == r.parallelism]
    return sum(r.digest for r in counted) % MODULUS, sum(r.rows for r in counted)


class _Digester(Sink):
    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._digest = 0
        self._rows = 0

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        if self._folder is not None:
            with named_errors(self._folder):
                make_folder(self._folder)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._digest = (self._digest + digest(rows)) % MODULUS
        self._rows += rows.num_rows
        self.ctx.count("rows_out", rows.num_rows)

    def snapshot(self) -> OperatorState:
        place = {"index": self.ctx.task.index, "parallelism": self.ctx.parallelism}
        return OperatorState(values={"digest": self._digest, "rows": self._rows, **place})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """At another parallelism the first task takes over the sums of all earlier tasks."""
        own = [part.values for part in parts if self._is_own(part)]
        first = [part.values for part in parts] if self.ctx.task.index == 0 else []
        taken = own if len(parts) == 1 and own else first
        self._digest = sum(int(values["digest"]) for values in taken) % MODULUS
        self._rows = sum(int(values["rows"]) for values in taken)

    def _is_own(self, part: OperatorState) -> bool:
        place = (part.values["index"], part.values["parallelism"])
        return place == (self.ctx.task.index, self.ctx.parallelism)

    def prepare(self, checkpoint: int) -> bytes:
        result = DigestResult(self._digest, self._rows, self.ctx.task.index, self.ctx.parallelism, checkpoint)
        return msgspec.msgpack.encode(result)

    def commit(self, committable: bytes) -> None:
        result = decode_result(committable)
        if self._folder is not None:
            owner = f"{quote(self.ctx.operator, safe=' ')}-{result.index}-"
            name = f"{owner}{result.checkpoint}{_SUFFIX}"
            _write_whole(os.path.join(self._folder, name), msgspec.json.encode(result))
            _remove_before(self._folder, owner, result.checkpoint)


def _remove_before(folder: str, owner: str, checkpoint: int) -> None:
    """Deletes the results of earlier checkpoints."""
    with named_errors(folder):
        for name in os.listdir(folder):
            number = name.removeprefix(owner).removesuffix(_SUFFIX)
            if name == f"{owner}{number}{_SUFFIX}" and number.isdigit() and int(number) < checkpoint:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))


def _write_whole(path: str, content: bytes) -> None:
    """Writes a file completely or not at all. A task that was replaced may still write the same file, also on another
    machine, so each attempt has a file of its own until it is complete."""
    with named_errors(path):
        with open(f"{path}.{secrets.token_hex(8)}.incomplete", "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(file.name, path)
        flush_folder(os.path.dirname(path))
