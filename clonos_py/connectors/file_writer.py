"""Exactly-once files: rows are staged in ``.staged`` and renamed into the folder when their checkpoint is complete."""

from __future__ import annotations

import os
from typing import NoReturn
from urllib.parse import quote

import pyarrow as pa

from clonos_py.connectors.row_files import RowFile, named_errors
from clonos_py.connectors.staging import StagedPiece, StagedSink
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import OperatorContext, Output

STAGED = ".staged"


class FileWriter(StagedSink):
    """The sink of one task. All tasks of an operator write to one folder, which they must share.

    An epoch's file is ``OPERATOR-INDEX-CHECKPOINT.FORMAT``. Files of the operator that this run did not write are an
    error: results of two runs are never mixed.
    """

    def __init__(self, folder: str, file_format: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._format = file_format
        self._schema = schema
        self._file: RowFile | None = None
        self._staged = ""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        with named_errors(self._folder):
            os.makedirs(os.path.join(self._folder, STAGED), exist_ok=True)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._write(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def prepare(self, checkpoint: int) -> bytes | None:
        self._check_first()
        return super().prepare(checkpoint)

    def _write(self, rows: pa.RecordBatch) -> None:
        if self._file is None:
            self._check_first()
            self._staged = f"{self._new_staged_name()}.{self._format}"
            self._file = RowFile(self._staged_path(self._staged), self._format, self._schema)
        self._file.write(rows)

    @property
    def _operator(self) -> str:
        return quote(self.ctx.operator, safe=" ")

    @property
    def _owner(self) -> str:
        return f"{self._operator}-{self.ctx.task.index}"

    def _final_name(self, checkpoint: int) -> str:
        return f"{super()._final_name(checkpoint)}.{self._format}"

    def _close_staged(self) -> str | None:
        if self._file is None:
            return None
        self._file.finish()
        self._file = None
        flush_folder(os.path.join(self._folder, STAGED))
        return self._staged

    def _publish(self, piece: StagedPiece) -> None:
        self._show(piece.staged, piece.final)
        flush_folder(self._folder)

    def _show(self, staged_name: str, final_name: str) -> None:
        """Renames a staged file, unless that has been done."""
        staged, final = self._staged_path(staged_name), os.path.join(self._folder, final_name)
        with named_errors(final):
            if os.path.exists(final) and os.path.exists(staged):
                self._check_new(final)
            try:
                os.rename(staged, final)
            except FileNotFoundError:  # this process has renamed it before, or another attempt of this task just now
                if not os.path.exists(final):
                    raise SinkError(
                        f"{staged} is missing, and {final} was not written: restore it, or start anew with --fresh"
                    ) from None

    def _check_first(self) -> None:
        """Before the first checkpoint of a run no file of its own can be there: none of its checkpoints is complete."""
        if self._checkpoint:
            return
        with named_errors(self._folder):
            names = sorted(os.listdir(self._folder))
        for name in names:
            if self._is_final(name):
                self._refuse(os.path.join(self._folder, name))

    def _is_final(self, name: str) -> bool:
        operator, *numbers = os.path.splitext(name)[0].rsplit("-", 2)
        return operator == self._operator and len(numbers) == 2 and all(map(str.isdigit, numbers))

    def _check_new(self, final: str) -> None:
        if os.path.exists(final):
            self._refuse(final)

    def _refuse(self, final: str) -> NoReturn:
        raise SinkError(f"{final} exists, written by another run: move the results away or choose another folder")

    def _discard_open(self) -> None:
        if self._file is not None:
            self._file.discard()
            self._file = None

    def _discard_before(self, checkpoint: int) -> None:
        with named_errors(self._folder):
            for name in sorted(os.listdir(os.path.join(self._folder, STAGED))):
                if self._is_left_over(name, checkpoint):
                    self._remove(f"{STAGED}/{name}")

    def _remove(self, name: str) -> bool:
        """Deletes a file of the folder; False if there is none."""
        path = os.path.join(self._folder, name)
        with named_errors(path):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return False
        return True

    def _staged_path(self, name: str) -> str:
        return os.path.join(self._folder, STAGED, name)


def flush_folder(path: str) -> None:
    """Makes new and renamed entries of a folder durable."""
    with named_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
