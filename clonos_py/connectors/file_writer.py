"""Exactly-once files: rows are staged in ``.staged`` and renamed into the folder when their checkpoint is complete.

The names in a checkpoint are checked like any input: they must lead to files of this operator in this folder. Files
that another process has staged must have the size and digest that they had then. Visible files belong to the user and
are not checked.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn
from urllib.parse import quote

import pyarrow as pa

from clonos_py.connectors.file_content import Compression, suffix_of
from clonos_py.connectors.row_files import RowFile, digest_of, named_errors
from clonos_py.connectors.staging import StagedFile, StagedPiece, StagedSink
from clonos_py.model.durable_folders import flush_folder, make_folder
from clonos_py.model.errors import SinkError, UnreadableCheckpointError
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.state import OperatorState

STAGED = ".staged"
_VISIBLE = re.compile(r"(?P<operator>.+)-(?P<index>[0-9]+)-(?P<checkpoint>[0-9]+)(?:\.[0-9]+)?(?:\.[a-z]*)*", re.DOTALL)


class _VisibleName(NamedTuple):
    """The task that has written a visible file, and the checkpoint that covers it."""

    task_index: int
    checkpoint: int


class FileWriter(StagedSink):
    """The sink of one task. All tasks of an operator write to one shared folder.

    The file of an epoch is ``OPERATOR-INDEX-CHECKPOINT.FORMAT``. Files of the operator that this run did not write are
    an error: results of two runs are never mixed.
    """

    def __init__(
        self, folder: str, file_format: str, schema: pa.Schema, compression: Compression | None = None
    ) -> None:
        self._folder = folder
        self._compression: Compression | None = compression
        self._format = file_format
        self._schema = schema
        self._file: RowFile | None = None
        self._staged = ""
        self._closed: tuple[StagedFile, ...] = ()
        """The files of the piece that was closed last."""
        self._own: set[str] = set()
        """Pieces that this sink has staged and not yet made visible."""
        self._later_looked_for = False

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        with named_errors(self._folder):
            make_folder(os.path.join(self._folder, STAGED))

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._write(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        self._later_looked_for = False

    def prepare(self, checkpoint: int) -> bytes | None:
        self._check_first()
        if not self._later_looked_for:
            self._check_later()
            self._later_looked_for = True
        return super().prepare(checkpoint)

    def _write(self, rows: pa.RecordBatch) -> None:
        if self._file is None:
            self._check_first()
            self._staged = f"{self._new_staged_name()}.{self._suffix}"
            self._file = RowFile(self._staged_path(self._staged), self._format, self._schema, self._compression)
        self._file.write(rows)

    @property
    def _operator(self) -> str:
        return quote(self.ctx.operator, safe=" ")

    @property
    def _owner(self) -> str:
        return f"{self._operator}-{self.ctx.task.index}"

    def _final_name(self, checkpoint: int) -> str:
        return f"{super()._final_name(checkpoint)}.{self._suffix}"

    @property
    def _suffix(self) -> str:
        return self._format + ("" if self._compression is None else suffix_of(self._compression))

    def _close_staged(self) -> str | None:
        if self._file is None:
            return None
        self._closed = (StagedFile("", *self._file.finish()),)
        self._file = None
        with named_errors(self._folder):
            flush_folder(os.path.join(self._folder, STAGED))
        return self._staged

    def _piece(self, checkpoint: int, staged: str) -> StagedPiece:
        self._own.add(staged)
        return StagedPiece(checkpoint, staged, self._final_name(checkpoint), self._closed, self._folder)

    def _publish(self, piece: StagedPiece) -> None:
        self._check_names(piece)
        self._show_all(piece)
        self._own.discard(piece.staged)

    def _show_all(self, piece: StagedPiece) -> None:
        for file in piece.files:
            self._show(piece, piece.staged, piece.final, file)
        with named_errors(self._folder):
            flush_folder(self._folder)

    def _check_names(self, piece: StagedPiece) -> None:
        """Raises CheckpointError for a name that is not a file of this operator in this folder."""
        for name in (piece.staged, piece.final):
            if not (name.startswith(f"{self._operator}-") and is_component(name)):
                self._refuse_name(name)
        for place in [file.place for file in piece.files] or ["no file"]:
            if not self._is_place(place):
                self._refuse_name(place)

    def _is_place(self, place: str) -> bool:
        return place == ""

    def _refuse_name(self, name: str) -> NoReturn:
        raise UnreadableCheckpointError(
            f"the checkpoint names {name!r} as rows of operator {self.ctx.operator!r}, which is no file of it in "
            f"{self._folder}: its manifest is damaged; restore it from a copy, or start over with --fresh"
        )

    def _show(self, piece: StagedPiece, staged_name: str, final_name: str, file: StagedFile) -> None:
        """Renames a staged file into the folder, unless that was done before."""
        staged, final = self._staged_path(staged_name), os.path.join(self._folder, final_name)
        with named_errors(final):
            if os.path.lexists(final) and os.path.lexists(staged):
                self._check_new(final)
            self._check_staged(staged, file, piece.staged in self._own)
            try:
                os.rename(staged, final)
            except FileNotFoundError:  # this process renamed it before, or another attempt of the task did just now
                if not os.path.lexists(final):
                    missing = f"{staged} is missing, and {final} was not written"
                    if piece.folder not in ("", self._folder):
                        raise SinkError(
                            f"{missing}: the checkpoint belongs to the output folder {piece.folder}: write there "
                            f"again, move its contents to {self._folder}, or start over with --fresh"
                        ) from None
                    raise SinkError(f"{missing}: restore it, or start over with --fresh") from None

    def _check_staged(self, path: str, file: StagedFile, own: bool) -> None:
        """Raises SinkError if the file is not what was staged; for this sink's own files only sizes are compared."""
        try:
            found = os.lstat(path)
            whole = stat.S_ISREG(found.st_mode) and found.st_size == file.size_bytes
            if whole and (own or digest_of(path) == (file.size_bytes, file.digest)):
                return
        except FileNotFoundError:  # it is visible, or the rename will find it missing
            return
        raise SinkError(
            f"{path} is not what was staged there: restore it from a copy, or move the results away and start over "
            "with --fresh"
        )

    def _check_later(self) -> None:
        """Raises SinkError for visible rows of a checkpoint after the restored one: no such checkpoint can be complete.
        Called once after each restore. Each task checks its own files and those of tasks that no longer exist; other
        tasks may be ahead."""
        for path in self._visible():
            file = self._named(path)
            if file is not None and self._is_mine(file) and file.checkpoint > self._checkpoint:
                raise SinkError(
                    f"{path} is of a later checkpoint than {self._checkpoint}, from which this run continues: "
                    "restore the manifest of the last checkpoint, or move the results away and start over with --fresh"
                )

    def _visible(self) -> Iterator[str]:
        with named_errors(self._folder):
            yield from (os.path.join(self._folder, name) for name in sorted(os.listdir(self._folder)))

    def _is_mine(self, file: _VisibleName) -> bool:
        """Whether this task checks the file: it is its own, or that of a task that no longer exists."""
        return file.task_index == self.ctx.task.index or file.task_index >= self.ctx.parallelism

    def _check_first(self) -> None:
        """Raises SinkError if the operator has visible files before the first checkpoint of the run: another run has
        written them."""
        if self._checkpoint:
            return
        for path in self._visible():
            if self._named(path) is not None:
                self._refuse(path)

    def _named(self, path: str) -> _VisibleName | None:
        """What the name of a visible file says; None if it is none of this operator."""
        found = _VISIBLE.fullmatch(os.path.basename(path))
        if found is None or found["operator"] != self._operator:
            return None
        return _VisibleName(int(found["index"]), int(found["checkpoint"]))

    def _check_new(self, final: str) -> None:
        if os.path.lexists(final):
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


def is_component(name: str) -> bool:
    """Whether a name is one path component that stays inside its folder."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
