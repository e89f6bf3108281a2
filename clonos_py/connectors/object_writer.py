"""Exactly-once files in an object store: rows are uploaded to ``.staged`` and copied to their place by the store when
their checkpoint is complete.

An object appears as a whole. A commit that is repeated copies the same bytes to the same name, or finds that this was
done. So neither rows nor files are written twice, whichever attempt of a task commits.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import xxhash

from clonos_py.connectors.file_content import Compression
from clonos_py.connectors.file_writer import STAGED, FileWriter
from clonos_py.connectors.object_files import client_for
from clonos_py.connectors.partitioned_files import is_place_of, kept_columns, parts_by
from clonos_py.connectors.row_files import RowFile, named_errors
from clonos_py.connectors.staging import StagedFile, StagedPiece, StagedSink
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import OperatorContext, Output
from clonos_py.model.state import OperatorState
from clonos_py.object_store.client import ObjectClient


class ObjectWriter(FileWriter):
    """The sink of one task. Files have the names that ``FileWriter`` gives them; ``by`` names the columns whose values
    name folders. A file of more than ``roll_bytes`` is closed, and the rows go on in another one of the same
    checkpoint, ``OPERATOR-INDEX-CHECKPOINT.PART.FORMAT``."""

    def __init__(
        self,
        uri: str,
        file_format: str,
        schema: pa.Schema,
        by: Sequence[str] = (),
        compression: Compression | None = None,
        roll_bytes: int | None = None,
    ) -> None:
        super().__init__(uri.rstrip("/"), file_format, kept_columns(schema, by), compression)
        self._by, self._roll_bytes = tuple(by), roll_bytes
        self._files: dict[str, RowFile] = {}
        """By place: the file that is being written."""
        self._full: list[StagedFile] = []
        """Files of the open piece that are closed."""
        self._leftovers_looked_for = False

    def open(self, ctx: OperatorContext, out: Output) -> None:
        StagedSink.open(self, ctx, out)
        self._client, path = client_for("FileSink", self._folder)
        self._prefix = path.rstrip("/")

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        self._leftovers_looked_for = False

    def _write(self, rows: pa.RecordBatch) -> None:
        if not self._files and not self._full:
            self._check_first()
            self._staged = self._new_staged_name()
        for place, part in self._parts(rows):
            file = self._file_at(place)
            file.write(part)
            if self._roll_bytes is not None and file.size_bytes >= self._roll_bytes:
                self._finish(place)

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self._by:
            yield "", rows
            return
        for place, _, part in parts_by(rows, self._by):
            yield place, part

    def _file_at(self, place: str) -> RowFile:
        if place not in self._files:
            key = self._staged_key(self._staged, place, self._part(place))
            output = _ObjectOutput(self._client, key)
            self._files[place] = RowFile(
                f"{self._client.root}/{key}", self._format, self._schema, self._compression, output
            )
        return self._files[place]

    def _finish(self, place: str) -> None:
        part = self._part(place)
        self._full.append(StagedFile(place, *self._files.pop(place).finish(), part))

    def _part(self, place: str) -> int:
        """The number of the file that is being written."""
        return sum(file.place == place for file in self._full)

    def _close_staged(self) -> str | None:
        for place in list(self._files):
            self._finish(place)
        if not self._full:
            return None
        self._closed, self._full = tuple(self._full), []
        return self._staged

    def _is_place(self, place: str) -> bool:
        return is_place_of(place, self._by)

    def _show_all(self, piece: StagedPiece) -> None:
        for file in piece.files:
            self._copy(piece, file)
        with named_errors(self._folder):
            self._client.delete([self._staged_key(piece.staged, file.place, file.part) for file in piece.files])

    def _copy(self, piece: StagedPiece, file: StagedFile) -> None:
        staged, final = self._staged_key(piece.staged, file.place, file.part), self._final_key(piece.final, file)
        with named_errors(f"{self._client.root}/{final}"):
            try:
                self._client.copy(staged, final)
            except FileNotFoundError:  # this process copied it before, or another attempt of the task did just now
                self._check_copied(piece, staged, final, file)

    def _check_copied(self, piece: StagedPiece, staged: str, final: str, file: StagedFile) -> None:
        try:
            size_bytes = self._client.head(final).size_bytes
        except FileNotFoundError:
            size_bytes = -1
        if size_bytes == file.size_bytes:
            return
        found = "was not written" if size_bytes < 0 else f"has {size_bytes} bytes in place of {file.size_bytes}"
        where = "" if piece.folder in ("", self._folder) else f"; the checkpoint belongs to {piece.folder}"
        raise SinkError(
            f"{self._client.root}/{staged} is missing, and {self._client.root}/{final} {found}{where}: restore the "
            "object, or start over with --fresh"
        )

    def _visible(self) -> Iterator[str]:
        with named_errors(self._folder):
            found = self._client.below(self._prefix) if self._by else self._client.in_folder(self._prefix)[0]
        hidden = f"{self._key(STAGED)}/"
        yield from (f"{self._client.root}/{one.path}" for one in found if not one.path.startswith(hidden))

    def _discard_open(self) -> None:
        for file in self._files.values():
            file.discard()
        self._files, self._full = {}, []  # files that are closed are left over, and are found at the next commit

    def _discard_before(self, checkpoint: int) -> None:
        """Looks for pieces that are left over once after each restore, since listing costs a request."""
        if self._leftovers_looked_for:
            return
        self._leftovers_looked_for = True
        hidden = f"{self._key(STAGED)}/"
        with named_errors(self._folder):
            found = [one.path for one in self._client.below(hidden.rstrip("/"))]
            self._client.delete(
                [key for key in found if self._is_left_over(key.removeprefix(hidden).partition("/")[0], checkpoint)]
            )

    # ---- keys of objects

    def _staged_key(self, staged: str, place: str, part: int) -> str:
        return self._key("/".join(one for one in (STAGED, staged, place, f"{part}.{self._suffix}") if one))

    def _final_key(self, final: str, file: StagedFile) -> str:
        stem = final.removesuffix(f".{self._suffix}")
        name = final if not file.part else f"{stem}.{file.part}.{self._suffix}"
        return self._key(f"{file.place}/{name}".lstrip("/"))

    def _key(self, path: str) -> str:
        return "/".join(one for one in (self._prefix, path) if one)


class _ObjectOutput(io.RawIOBase):
    """An object that is being written. See ``OutputFile``."""

    def __init__(self, client: ObjectClient, key: str) -> None:
        self._object = client.writer(key)
        self.size_bytes = 0
        self.digest = xxhash.xxh3_64()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size_bytes

    def write(self, content: Any, /) -> int:
        whole = bytes(content)
        self.digest.update(whole)
        self.size_bytes += len(whole)
        self._object.write(whole)
        return len(whole)

    def park(self) -> None:
        """It has no descriptor."""

    def settle(self) -> None:
        self._object.close()

    def discard(self) -> None:
        """What is not closed never appears."""

    def abandon(self) -> None:
        """There is nothing left to close."""
