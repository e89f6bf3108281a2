"""The rows that sinks are given in a replay, as files to look at."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import pyarrow as pa

from clonos_py.checkpoint.layout import name_in_folder
from clonos_py.connectors.row_files import RowFile
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId

FORMAT = "jsonl"


class ReplayedRows:
    """Writes the rows of each sink to a file of its own, ``FOLDER/SINK.jsonl``, in the order of the replay. Without a
    folder it writes nothing."""

    def __init__(self, folder: Path | None, file_format: str = FORMAT) -> None:
        """Raises SettingError if the folder has files already, or cannot be made."""
        self._folder, self._format = folder, file_format
        self._files: dict[str, RowFile] = {}
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            used = any(folder.iterdir())
        except OSError as error:
            raise SettingError(f"{folder} cannot be made ({error.strerror}): name a folder elsewhere") from error
        if used:
            raise SettingError(f"{folder} has files already: name another folder, or a new one")

    def __enter__(self) -> ReplayedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for file in self._files.values():
            file.finish()

    def add(self, task: TaskId, sink: str, rows: pa.RecordBatch) -> None:
        """Adds rows that a sink was given."""
        if self._folder is None:
            return
        if sink not in self._files:
            path = self._folder / f"{name_in_folder(sink)}.{self._format}"
            self._files[sink] = RowFile(str(path), self._format, rows.schema)
        self._files[sink].write(rows)
