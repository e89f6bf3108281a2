"""A log of footprints that is cut or altered: the exact state, or one CheckpointError, never another state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.snapshots import OperatorHandle, TaskSnapshot
from clonos_py.model.windows import Counted
from clonos_py.operators.count_windows import CountWindowAggregate
from tests.unit.operators.scripted import opened, schema

AGGREGATES = (Aggregate("count", None, "n", pa.int64()), Aggregate("sum", "value", "total", pa.int64()))
RESULT = schema(("key", pa.int64()), ("n", pa.int64()), ("total", pa.int64()))


def begun() -> tuple[CountWindowAggregate, Any]:
    operator = CountWindowAggregate(("key",), Counted(10, 10, True), AGGREGATES, RESULT)
    _, out = opened(operator)
    operator.save_in_parts()
    return operator, out


@dataclass(frozen=True)
class Log:
    """A stored log, in several files."""

    store: CheckpointStore
    handle: OperatorHandle
    files: list[Path]

    def read(self) -> list[dict[str, Any]]:
        """The open windows that it stands for, as of their footprints."""
        operator, out = begun()
        operator.restore([self.store.read(self.handle)])
        operator.begin_rebuild()
        operator.rebuilt()
        out.batches = []
        operator.on_end()
        found: list[dict[str, Any]] = out.take()
        return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    folder = tmp_path_factory.mktemp("log")
    store, drawn, (operator, _) = CheckpointStore(str(folder), "job"), random.Random(1), begun()
    for checkpoint in range(1, 7):
        keys = [drawn.randrange(150) for _ in range(120)]
        operator.on_rows(pa.record_batch({"key": pa.array(keys), "value": pa.array(range(120))}), 0)
        operator.save(checkpoint)
        operator.check(checkpoint, 10)
        snapshot = TaskSnapshot(TaskId("sums", 0), checkpoint, {"sums": operator.footprints()}, b"")
        handle = store.write(snapshot, Attempt(1, 1)).operators["sums"]
    return Log(store, handle, sorted(folder.rglob("*.chunks")))


@contextmanager
def altered(path: Path, content: bytes) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(content)
    yield
    path.write_bytes(whole)


def outcome(log: Log) -> list[dict[str, Any]] | None:
    """What is read; None for an error."""
    try:
        return log.read()
    except CheckpointError:
        return None


def test_the_log_is_read_back(log: Log) -> None:
    assert len(log.read()) > 100
    assert len(log.files) > 4
    assert 15_000 < sum(path.stat().st_size for path in log.files) < 40_000


@pytest.mark.parametrize("apart", [13, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_log_that_is_cut_at_any_byte_gives_the_exact_state_or_an_error(log: Log, apart: int) -> None:
    expected = log.read()
    for path in log.files:
        content = path.read_bytes()
        for end in range(0, len(content), apart):
            with altered(path, content[:end]):
                assert outcome(log) in (None, expected), f"{path.name}, cut after {end} bytes"


@pytest.mark.parametrize("flips", [1_000, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_a_log_with_any_flipped_bit_gives_the_exact_state_or_an_error(log: Log, flips: int) -> None:
    expected, drawn = log.read(), random.Random(2)
    found = []
    for _ in range(flips):
        path = drawn.choice(log.files)
        content = bytearray(path.read_bytes())
        place = drawn.randrange(len(content))
        content[place] ^= 1 << drawn.randrange(8)
        with altered(path, bytes(content)):
            found.append(outcome(log))
        assert found[-1] in (None, expected), f"{path.name}, byte {place}"
    assert found.count(None) > flips / 2, "a bit that is not covered by a checksum is in the padding between chunks"


def test_a_log_without_any_of_its_files_is_an_error(log: Log) -> None:
    for path in log.files:
        kept = path.rename(path.with_suffix(".aside"))
        found = outcome(log)
        kept.rename(path)
        assert found is None or found == log.read()
