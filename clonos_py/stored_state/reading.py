"""Reads the state of a job from its checkpoints, which lie in a folder: ``read_state``. The job need not run, and may.

Nothing is written, and the job's code is not needed: a checkpoint names keys, windows, aggregates and attributes.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

import pyarrow as pa

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_jobs import jobs_text, only_job
from clonos_py.model.errors import CheckpointError, SettingError, UnreadableCheckpointError
from clonos_py.model.hidden import is_hidden
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import Manifest
from clonos_py.model.state import OperatorState
from clonos_py.model.state_definitions import StateDefinition
from clonos_py.stored_state.contents import PARTS_TABLES, OperatorContents
from clonos_py.stored_state.differences import difference
from clonos_py.stored_state.queries import queried
from clonos_py.stored_state.sizes import key_group_sizes, key_sizes, stored_sizes, with_live_sizes
from clonos_py.stored_state.user_tables import SINK, table_name, user_tables

SOURCE = "source"


class ReplacedCheckpointError(UnreadableCheckpointError):
    """A running job has deleted the checkpoint while it was read, since newer ones are complete: read again."""


def read_state(
    checkpoints: str | os.PathLike[str], job: str | None = None, checkpoint: int | str | None = None
) -> StoredState:
    """The state of a job in the folder, or at the URI, ``checkpoints``. ``job``: its name, if the folder has several.
    ``checkpoint``: a number, or the name of a savepoint; the newest complete checkpoint if it is omitted, also of a job
    that runs.

    Raises SettingError for a job or a checkpoint that the folder does not have, and CheckpointError if it cannot be
    read or is damaged.
    """
    folder = os.fspath(checkpoints)
    store = CheckpointStore(folder, only_job(folder, job, "job="))
    return StoredState(store, manifest_of(store, folder, None if checkpoint is None else str(checkpoint)))


def manifest_of(store: CheckpointStore, folder: str, reference: str | None) -> Manifest:
    """The checkpoint of this number, or the savepoint of this name; without one the newest checkpoint. ``folder``: the
    one of the store. Raises SettingError if there is none, and CheckpointError if it cannot be read."""
    if reference is None:
        newest = store.latest()
        if newest is None:
            raise CheckpointError(f"{store.path} has no checkpoints: {jobs_text(folder)}")
        return newest
    savepoints, kept = store.savepoints(), store.readable()
    found = savepoints.get(reference)
    if found is None:
        found = next((one for one in kept if str(one.checkpoint) == reference), None)
    if found is not None:
        return found
    names = [*(str(one.checkpoint) for one in kept), *map(repr, savepoints)]
    raise SettingError(
        f"{store.path} has no checkpoint {reference} (any more): "
        f"{'it has ' + ', '.join(names) if names else 'it has none'}"
    )


class StoredState:
    """The state of all operators of a job at one checkpoint."""

    def __init__(self, store: CheckpointStore, manifest: Manifest) -> None:
        self._store, self._manifest = store, manifest

    def __repr__(self) -> str:
        return f"<StoredState of {self.job!r} at checkpoint {self.checkpoint}: {', '.join(self.operators)}>"

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._manifest.job

    @property
    def checkpoint(self) -> int:
        """The number of the checkpoint."""
        return self._manifest.checkpoint

    @property
    def operators(self) -> Sequence[str]:
        """The names of the operators with state, in the order of the plan."""
        kinds = self._manifest.kinds
        ordered = dict.fromkeys([*self._manifest.operators, *kinds])
        return [name for name in ordered if name in kinds and self._keeps_rows(name)]

    def _keeps_rows(self, operator: str) -> bool:
        manifest = self._manifest
        if manifest.kinds.get(operator) == SOURCE:
            return False
        if operator in manifest.definitions and manifest.kinds.get(operator) != SINK:
            return True
        return any(part.tables for part in manifest.parts(operator))

    def tables(self, operator: str, *, key_group: bool = False) -> dict[str, pa.Table]:
        """By name, the tables of an operator's state. Most have one, ``state``; joins have ``left`` and ``right``; see
        the page on state for the others. ``key_group``: with the column ``key_group``.

        Raises SettingError for an operator without state, CheckpointError for damaged state.
        """
        return user_tables(self.contents(operator), key_group)

    def table(self, operator: str, table: str | None = None, *, key_group: bool = False) -> pa.Table:
        """One of ``tables``: the only one, or ``state``, if ``table`` is omitted. Raises SettingError as well if there
        is no such table."""
        tables = self.tables(operator, key_group=key_group)
        name = table or ("state" if "state" in tables or len(tables) != 1 else next(iter(tables)))
        if name not in tables:
            raise SettingError(f"{operator!r} has no table {name!r}: it has {', '.join(map(repr, tables)) or 'none'}")
        return tables[name]

    def keys(self, operator: str) -> dict[str, list[str]]:
        """By table: the columns that are its keys."""
        contents = self._contents(operator, ())
        tables = [table for table in contents.definition.keys if not table.startswith(PARTS_TABLES)]
        named = {table_name(contents, table): contents.keys(table) for table in tables}
        return {table: [name for name in keys if not is_hidden(name)] for table, keys in named.items()}

    def sql(self, operator: str, query: str) -> pa.Table:
        """The answer to a query in Polars' SQL over ``tables``: ``select * from state order by total desc limit 5``.
        Raises SettingError for a query that cannot be answered."""
        return queried(self.tables(operator), query)

    def sizes(self, by: str = "operator", *, live: bool = False) -> pa.Table:
        """Rows and bytes: ``by`` "operator" or "task" ``stored_rows`` and ``stored_bytes``, where rows that were
        replaced or deleted count until they are cleared away; by "key_group" ``live_rows`` and ``live_bytes`` (in
        memory), for which the state is read. ``live``: these, too, of operators or tasks."""
        if by == "key_group":
            return key_group_sizes(map(self.contents, self.operators))
        if by not in ("operator", "task"):
            raise SettingError(f"sizes by {by!r}: give 'operator', 'task' or 'key_group'")
        sizes = stored_sizes(self._manifest, by == "task")
        with_rows = set(self.operators)
        mask = [name in with_rows for name in sizes.column("operator").to_pylist()]
        found = sizes.filter(pa.array(mask, pa.bool_()))
        return with_live_sizes(found, map(self.contents, self.operators)) if live else found

    def heaviest(self, operator: str, number: int = 10, by: str = "bytes") -> pa.Table:
        """The keys with the most ``bytes`` or ``rows``: the key columns, ``rows`` and ``bytes`` of live rows."""
        if by not in ("bytes", "rows"):
            raise SettingError(f"heaviest by {by!r}: give 'bytes' or 'rows'")
        other = "rows" if by == "bytes" else "bytes"
        return key_sizes(self.contents(operator)).sort_by([(by, "descending"), (other, "descending")]).slice(0, number)

    def changes(self, later: StoredState, operator: str) -> dict[str, pa.Table]:
        """By table: the rows that differ in a later state, with the column ``change``: added, removed, or before and
        after for a row of the same key and window."""
        old, new, keys = self.tables(operator), later.tables(operator), {**self.keys(operator), **later.keys(operator)}
        names = dict.fromkeys([*old, *new])
        return {
            name: difference(
                old.get(name, new.get(name, _NOTHING).slice(0, 0)),
                new.get(name, old.get(name, _NOTHING).slice(0, 0)),
                keys.get(name, []),
            )
            for name in names
        }

    def is_in_parts(self, operator: str) -> bool:
        """Whether the keys or windows of an operator were saved one by one (``protocol = continuous``): each is as it
        was then, and not as at the checkpoint."""
        self._check(operator)
        tables = {table for part in self._manifest.parts(operator) for table in part.tables}
        return any(table.startswith(PARTS_TABLES) for table in tables)

    def contents(self, operator: str) -> OperatorContents:
        """The stored rows of an operator. Raises SettingError and CheckpointError as ``tables``."""
        owners = [handle for handle in self._manifest.tasks if operator in handle.operators]
        owners.sort(key=lambda handle: handle.task.index)
        try:
            parts = [(handle.task, self._store.read(handle.operators[operator])) for handle in owners]
        except UnreadableCheckpointError as problem:
            self._check_not_replaced(problem)
            raise
        return self._contents(operator, parts)

    def _contents(self, operator: str, parts: Sequence[tuple[TaskId, OperatorState]]) -> OperatorContents:
        self._check(operator)
        manifest = self._manifest
        definition = manifest.definitions.get(operator, StateDefinition())
        if not definition.keys and any(fact.endswith("keys") for fact in definition.facts):
            raise CheckpointError(
                f"checkpoint {self.checkpoint} does not record which columns of {operator!r} are keys: an earlier "
                "version of clonos-py has written it; resume the job, and look into a checkpoint that it takes then"
            )
        return OperatorContents(operator, manifest.kinds.get(operator, ""), definition, manifest.key_groups, parts)

    def _check(self, operator: str) -> None:
        manifest, stateful = self._manifest, self.operators
        if operator in stateful:
            return
        known = ", ".join(stateful) or "none"
        if manifest.kinds.get(operator) == SOURCE:
            raise SettingError(f"{operator!r} is a source: its state is positions, no rows; with rows are: {known}")
        if operator in manifest.operators:
            raise SettingError(f"{operator!r} keeps no rows; operators that do: {known}")
        near = difflib.get_close_matches(operator, [*stateful, *manifest.operators], n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise SettingError(
            f"checkpoint {self.checkpoint} of {self.job!r} has no operator {operator!r}{meant}; with state: {known}"
        )

    def _check_not_replaced(self, problem: CheckpointError) -> None:
        newest = self._store.latest()
        if newest is None or newest.checkpoint == self.checkpoint:
            return
        if all(kept.checkpoint != self.checkpoint for kept in self._store.readable()):
            raise ReplacedCheckpointError(
                f"checkpoint {self.checkpoint} was deleted while it was read, since {newest.checkpoint} is complete: "
                "read again, or keep a savepoint"
            ) from problem


_NOTHING = pa.schema([]).empty_table()
