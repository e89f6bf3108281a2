"""Causal files: rows are visible in the folder as soon as they are written. Journals in the folder hold the
determinants that the rows depend on (Clonos, section 5.5; D16).

    FOLDER/OPERATOR-INDEX-EPOCH.FORMAT                        rows since checkpoint EPOCH; it only grows
    FOLDER/.causal/OPERATOR-INDEX/ATTEMPT/ATTEMPT-EPOCH       a journal

A journal is deleted once a later checkpoint is complete; the rows stay. The next attempt cuts off torn pieces and
writes them again.

A replaced attempt may keep running, but nothing that it writes becomes visible. It can publish a file only through the
folder of its attempt, and the next attempt empties and removes that folder: no file can be created in a removed folder,
or linked from it. Files that it still has open no longer have a name, since the next attempt replaces them by copies.
The journals are read after that. They are written ahead of the rows, so they cover all rows that were ever visible
under a name. So readers should open files by name, and open a file again when it was replaced.

Rows that no journal covers therefore mean that a journal was cut, removed, damaged or replaced by an older one: an
error. Damaged rows since the last checkpoint are written again from the logs. Older rows are not checked. Journals hold
the answers of services, so only their owner may read them.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import IO, NamedTuple, NoReturn
from urllib.parse import quote

import pyarrow as pa
import pyarrow.csv as pa_csv
import xxhash

from clonos_py.connectors.journal import JournalEntry, Mark, add_entry, entries, write_all
from clonos_py.connectors.row_files import json_lines, named_errors, open_regular
from clonos_py.connectors.written_times import written_times
from clonos_py.model.durable_folders import flush_folder, make_folder
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import CausalSink, OperatorContext, Output, OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment

_COPIED_BYTES = 8 << 20
JOURNALS = ".causal"
_ATTEMPT = re.compile(r"\d+\.\d+", re.ASCII)
_JOURNAL = re.compile(rf"{_ATTEMPT.pattern}-(?P<epoch>\d+)", re.ASCII)
GROWING = ("jsonl", "csv")
"""Formats whose files are complete after every row. A Parquet file is incomplete until its footer is written."""


def check_growing(owner: str, file_format: str) -> None:
    """Raises GraphError for a format whose files cannot be read while they grow."""
    if file_format not in GROWING:
        raise GraphError(
            f"{owner}: delivery='causal' needs a format whose files can be read while they grow, "
            f"{' or '.join(GROWING)}; {file_format} needs delivery='transactional'"
        )


class _Growing(NamedTuple):
    """The file of an epoch: its size in bytes and, once it exists, the file itself, open at its end."""

    size_bytes: int
    file: io.FileIO | None = None


class CausalFileWriter(CausalSink):
    """The sink of one task. All tasks of an operator write to one shared folder, on a file system with hard links.
    Files of the operator that this run did not write are an error: results of two runs are never mixed."""

    def __init__(self, folder: str, file_format: str, schema: pa.Schema) -> None:
        self._folder, self._format, self._schema = folder, file_format, schema
        self._attempt: Attempt | None = None
        self._shape = ""
        self._journals: dict[int, io.FileIO] = {}
        self._files: dict[int, _Growing] = {}

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        operator = quote(ctx.operator, safe=" ")
        self._owner = f"{operator}-{ctx.task.index}"
        self._of_operator = re.compile(rf"{re.escape(operator)}-(\d+)-(\d+)\.{self._format}")
        self._own_folder = os.path.join(self._folder, JOURNALS, self._owner)
        with named_errors(self._folder):
            make_folder(self._folder)
            make_folder(self._own_folder, 0o700)

    def close(self) -> None:
        for file in [*self._journals.values(), *(growing.file for growing in self._files.values())]:
            if file is not None:
                file.close()
        self._journals, self._files = {}, {}

    # ---- taking over

    def acquire(self, attempt: Attempt, checkpoint: int, shape: str, lineage: str) -> PublishedOutput:
        self._attempt, self._shape = attempt, shape
        with named_errors(self._own_folder):
            self._fence()
            self._check(checkpoint)
            for epoch in self._epochs_since(checkpoint):
                self._replace_by_copy(epoch)
            found = list(self._entries(checkpoint))
            marks = self._cut({mark.seq: mark for entry in found for mark in entry.marks})
            log = list(dict.fromkeys(segment for entry in found for segment in entry.log))
            self._start_journal(checkpoint, JournalEntry(shape, log, marks))
        return PublishedOutput(log, {mark.seq: mark.checksum for mark in marks})

    def _fence(self) -> None:
        """Fences off earlier attempts: takes over their journals and removes their folders, so that they can publish
        nothing more. If two attempts do this at the same time, the older one finds the folder of the newer one, or has
        its own emptied."""
        assert self._attempt is not None
        try:
            os.mkdir(self._attempt_folder)
        except FileExistsError:
            self._refuse(self._attempt_folder)
        flush_folder(self._own_folder)
        attempts = {_attempt_of(name): name for name in os.listdir(self._own_folder) if _ATTEMPT.fullmatch(name)}
        newest = max(attempts)
        if newest > self._attempt:
            raise SinkError(
                f"{os.path.join(self._own_folder, attempts[newest])}: attempt {self._attempt} of {self.ctx.task} has "
                "been replaced, or another run has written here: move the results away or choose another folder"
            )
        for attempt, name in sorted(attempts.items()):
            if attempt < self._attempt:
                self._empty(os.path.join(self._own_folder, name))

    def _empty(self, folder: str) -> None:
        """Empties and removes an earlier attempt's folder, in which it may still create files until then."""
        while os.path.exists(folder):
            with suppress(FileNotFoundError):
                for name in os.listdir(folder):
                    if name.startswith("rows"):
                        os.unlink(os.path.join(folder, name))
                    else:
                        os.rename(os.path.join(folder, name), os.path.join(self._attempt_folder, name))
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise

    def _check(self, checkpoint: int) -> None:
        """Raises SinkError if rows visible since ``checkpoint`` are from another run, or from tasks of another
        parallelism or other operators, which this job cannot repeat."""
        since = self._entries(checkpoint, any_shape=True)
        shapes = {mark.epoch: entry.shape for entry in since for mark in entry.marks}
        for name in sorted(os.listdir(self._folder)):
            found, path = self._of_operator.fullmatch(name), os.path.join(self._folder, name)
            if found is None or int(found[2]) < checkpoint or not os.path.getsize(path):
                continue
            index, epoch = int(found[1]), int(found[2])
            if index == self.ctx.task.index and epoch not in shapes:
                self._refuse(path)
            if index >= self.ctx.parallelism or (index == self.ctx.task.index and shapes[epoch] != self._shape):
                raise SinkError(
                    f"{path} has rows since checkpoint {checkpoint}, which only tasks of the operators and the "
                    "parallelism that wrote them can repeat: resume with those, or move the results away and start "
                    "over with --fresh"
                )

    def _epochs_since(self, checkpoint: int) -> list[int]:
        found = (self._of_operator.fullmatch(name) for name in os.listdir(self._folder))
        own = [int(match[2]) for match in found if match and int(match[1]) == self.ctx.task.index]
        return sorted(epoch for epoch in own if epoch >= checkpoint)

    def _replace_by_copy(self, epoch: int) -> None:
        """Replaces a file by a copy. A process that has the file open then writes to a file without a name. Rows that
        it wrote before the rename are copied, too."""
        path, copy = self._path(epoch), os.path.join(self._attempt_folder, f"rows-{epoch}")
        file = io.FileIO(copy, "x+")
        with open_regular(path) as former:
            _copy_rest(former, file)
            os.rename(copy, path)
            _copy_rest(former, file)
        self._files[epoch] = _Growing(0, file)

    def _entries(self, checkpoint: int, any_shape: bool = False) -> Iterator[JournalEntry]:
        for name in sorted(os.listdir(self._attempt_folder)):
            journal = _JOURNAL.fullmatch(name)
            if journal is not None and int(journal["epoch"]) >= checkpoint:
                found = entries(os.path.join(self._attempt_folder, name))
                yield from (entry for entry in found if any_shape or entry.shape == self._shape)

    def _cut(self, marks: dict[int, Mark]) -> list[Mark]:
        """Keeps complete pieces up to the first incomplete one; files are truncated after the last one kept."""
        self._check_covered(marks.values())
        kept: list[Mark] = []
        for _, mark in sorted(marks.items()):
            growing = self._files.get(mark.epoch)
            if growing is None or growing.file is None or not _is_whole(growing.file, growing.size_bytes, mark):
                break
            self._files[mark.epoch] = _Growing(mark.stop, growing.file)
            kept.append(mark)
        for size_bytes, file in self._files.values():
            if file is not None:
                file.truncate(size_bytes)
                file.seek(size_bytes)
                os.fsync(file.fileno())
        return kept

    def _check_covered(self, marks: Collection[Mark]) -> None:
        """Raises SinkError for rows that no journal covers. (The rows of a mark may be missing, if the writer died
        before it wrote them.)"""
        for epoch, (_, file) in self._files.items():
            covered = max((mark.stop for mark in marks if mark.epoch == epoch), default=0)
            if file is not None and os.fstat(file.fileno()).st_size > covered:
                raise SinkError(
                    f"{self._path(epoch)} has rows that are not in the journals in {self._attempt_folder}: restore "
                    "these from a copy, or move the results away and start over with --fresh"
                )

    def _start_journal(self, checkpoint: int, entry: JournalEntry) -> None:
        """Starts the journal of this attempt with all earlier entries. Journals of earlier attempts, to which their
        writers may still append, are deleted before this attempt makes any choice."""
        earlier = os.listdir(self._attempt_folder)
        if entry.log or entry.marks:
            add_entry(self._journal(checkpoint), entry)
        for name in earlier:
            os.unlink(os.path.join(self._attempt_folder, name))
        flush_folder(self._attempt_folder)
        flush_folder(self._folder)

    # ---- writing

    def append(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        at, file = self._files.get(epoch, _Growing(0))
        content, marks = [], []
        for piece in pieces:
            encoded = self._encode(piece.rows, first=at == 0)
            digest = xxhash.xxh3_64_intdigest(encoded)
            marks.append(Mark(piece.seq, epoch, at, at + len(encoded), piece.checksum, digest))
            content.append(encoded)
            at += len(encoded)
        with named_errors(self._path(epoch)):
            add_entry(self._journal(epoch), JournalEntry(self._shape, list(log), marks))
            file = file or self._new_file(epoch)
            write_all(file, b"".join(content))
        self._files[epoch] = _Growing(at, file)

    def settle(self) -> None:
        with named_errors(self._folder):
            for _, file in self._files.values():
                if file is not None:
                    os.fdatasync(file.fileno())

    def _encode(self, rows: pa.RecordBatch, first: bool) -> bytes:
        with named_errors(self._folder):
            if self._format == "jsonl":
                return bytes(json_lines(rows))
            made = io.BytesIO()
            pa_csv.write_csv(written_times(rows, numbers_exact=True), made, pa_csv.WriteOptions(include_header=first))
            return made.getvalue()

    def _journal(self, epoch: int) -> io.FileIO:
        if epoch not in self._journals:
            self._journals[epoch] = self._create(f"{self._attempt}-{epoch}")
            flush_folder(self._attempt_folder)
        return self._journals[epoch]

    def _new_file(self, epoch: int) -> io.FileIO:
        name, path = f"rows-{epoch}", self._path(epoch)
        file = self._create(name)
        try:
            os.link(os.path.join(self._attempt_folder, name), path)
        except FileExistsError:
            self._refuse(path)
        except FileNotFoundError:
            self._raise_replaced()
        os.unlink(os.path.join(self._attempt_folder, name))
        flush_folder(self._folder)
        return file

    def _create(self, name: str) -> io.FileIO:
        try:
            return io.FileIO(os.path.join(self._attempt_folder, name), "x")
        except FileNotFoundError:
            self._raise_replaced()

    def truncate_before(self, checkpoint: int) -> None:
        for epoch in [epoch for epoch in self._journals if epoch < checkpoint]:
            self._journals.pop(epoch).close()
            with named_errors(self._attempt_folder), suppress(FileNotFoundError):
                os.unlink(os.path.join(self._attempt_folder, f"{self._attempt}-{epoch}"))
        for epoch in [epoch for epoch in self._files if epoch < checkpoint]:
            file = self._files.pop(epoch).file
            if file is not None:
                file.close()

    # ---- names

    @property
    def _attempt_folder(self) -> str:
        return os.path.join(self._own_folder, str(self._attempt))

    def _path(self, epoch: int) -> str:
        return os.path.join(self._folder, f"{self._owner}-{epoch}.{self._format}")

    def _refuse(self, path: str) -> NoReturn:
        raise SinkError(f"{path} exists, written by another run: move the results away or choose another folder")

    def _raise_replaced(self) -> NoReturn:
        raise SinkError(f"attempt {self._attempt} of {self.ctx.task} has been replaced: it can no longer write")


def _copy_rest(former: IO[bytes], file: io.FileIO) -> None:
    while content := former.read(_COPIED_BYTES):
        write_all(file, content)


def _is_whole(file: io.FileIO, start: int, mark: Mark) -> bool:
    if mark.start != start:
        return False
    return xxhash.xxh3_64_intdigest(os.pread(file.fileno(), mark.stop - start, start)) == mark.digest


def _attempt_of(name: str) -> Attempt:
    generation, _, counter = name.partition(".")
    return Attempt(int(generation), int(counter))
