"""Events in files: replayed as the generator would make them, from any offset, and refused where they are not whole."""

from __future__ import annotations

from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.bench import oracle
from clonos_py.connectors import MemorySink
from clonos_py.evaluation.nexmark.description import described, read_description, source_of, write_description
from clonos_py.evaluation.nexmark.generator import KINDS, SCHEMAS
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.recorded import RecordedEvents
from clonos_py.evaluation.nexmark.source import Columns, NexmarkSource
from clonos_py.evaluation.nexmark.stripe_reader import StripeReader
from clonos_py.model.errors import SettingError, SourceError
from clonos_py.model.operators import End, Read, Wait
from clonos_py.plan.physical import plan
from clonos_py.runtime.sim.run import simulate_plan

ORIGIN = NexmarkSource(events=9_321, event_rate=200, seed=3, partitions=3, model=Model(out_of_order_group=10))
NOW = 1_800_000_000_000_000


def write(folder: Path, source: NexmarkSource, row_group: int = 1_000) -> RecordedEvents:
    """The files that Spark would write, in small row groups."""
    layout, generator = source.layout, source.generator
    for kind, name in enumerate(KINDS):
        (folder / name).mkdir(parents=True)
        for partition in range(layout.partitions):
            pieces = [
                generator.part_of(kind, generator.block_of(kind, block), start, stop)
                for block, start, stop in layout.stripes(partition)
            ]
            path = folder / name / f"part-{partition:05}-0b1c-c000.snappy.parquet"
            pq.write_table(pa.Table.from_batches(pieces, SCHEMAS[kind]), path, row_group_size=row_group)
    write_description(folder, source)
    return RecordedEvents(str(folder))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedEvents:
    return write(tmp_path_factory.mktemp("recorded") / "events", ORIGIN)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_files_contain_the_events_of_the_generator(recorded: RecordedEvents, parallelism: int) -> None:
    for index in range(parallelism):
        expected, found = (_drain(_reader(source, index, parallelism)) for source in (ORIGIN, recorded))
        assert [_without_checksum(read) for read in found] == [_without_checksum(read) for read in expected]


@settings(max_examples=10, deadline=None)
@given(read_rows=st.integers(50, 3_000), stop_after=st.integers(0, 40))
def test_a_reader_continues_at_any_offset(recorded: RecordedEvents, read_rows: int, stop_after: int) -> None:
    reads = _drain(_reader(recorded, read_rows=read_rows))
    before = reads[:stop_after]
    second = _reader(recorded, read_rows=read_rows)
    second.seek({read.partition: read.stop for read in before})
    after = _drain(second)
    with_rows = [read for read in after if read.events]
    assert {(r.partition, r.start): r for r in [*before, *with_rows]} == {(r.partition, r.start): r for r in reads}
    assert {r.partition for r in after if r.last} == {r.partition for r in reads}


def test_rereading_gives_the_same_rows_and_checksum_and_continues_after_them(recorded: RecordedEvents) -> None:
    reads = _drain(_reader(recorded, read_rows=300))
    replacement = _reader(recorded, read_rows=64)
    assert [replacement.reread(read.partition, read.start, read.stop) for read in reads[:9]] == reads[:9]
    after = replacement.poll(0)
    assert isinstance(after, Read)
    assert (after.partition, after.start) == (reads[9].partition, reads[9].start)


def test_a_replay_at_a_rate_waits_for_its_schedule(recorded: RecordedEvents) -> None:
    reader = _reader(RecordedEvents(recorded.folder, rate=1_000))
    now, read_events = NOW, 0
    while not isinstance(answer := reader.poll(now), End):
        if isinstance(answer, Wait):
            now = answer.until
        else:
            read_events += answer.events
            assert read_events <= (now - NOW) / 1_000 + 60
    assert now - NOW == pytest.approx(3 * ORIGIN.layout.size(0) * 1_000, rel=0.01)
    assert read_events == 9_321


def test_only_files_of_requested_columns_are_read(tmp_path: Path) -> None:
    recorded = write(tmp_path, ORIGIN)
    for path in (tmp_path / "person").iterdir():
        path.write_bytes(b"garbage")
    reads = _drain(_reader(recorded, columns=((), ("seller",), ("price", "auction"))))
    assert {read.rows[0] for read in reads} == {None}
    assert sum(read.rows[2].num_rows for read in reads if read.rows[2] is not None) == ORIGIN.generator.counts(9_321)[2]
    assert reads[0].rows[2].schema.names == ["price", "auction"]  # type: ignore[union-attr]


@pytest.mark.parametrize("query", ["q1", "q8", "q11"])
def test_queries_on_files_have_the_answers_of_the_generator_with_tasks_killed(
    recorded: RecordedEvents, query: str
) -> None:
    calm = simulate_plan(plan(build(query, recorded, MemorySink()), parallelism=2), seed=3, kills=0)
    sink = MemorySink()
    job = plan(build(query, recorded, sink), parallelism=2)
    outcome = simulate_plan(job, seed=3, kills=2, actions_expected=calm.actions)
    table = sink.table()
    assert (outcome.kills, outcome.problems) == (2, [])
    assert table is not None
    assert difference(oracle.expected(query, ORIGIN), [tuple(row.values()) for row in table.to_pylist()]) is None
    sink.clear()


def test_a_job_is_submitted_with_the_list_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, ORIGIN)
    submitted = cloudpickle.loads(cloudpickle.dumps(RecordedEvents(str(tmp_path))))
    (tmp_path / "nexmark.json").unlink()
    assert submitted.origin == ORIGIN
    assert [len(files) for files in submitted.files] == [3, 3, 3]


def test_a_folder_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"holds no events .* clonos nexmark generate"):
        _ = RecordedEvents(str(tmp_path)).origin


def test_incomplete_files_are_refused(tmp_path: Path) -> None:
    recorded = write(tmp_path, ORIGIN)
    first, second, third = sorted((tmp_path / "bid").iterdir())
    first.write_bytes(second.read_bytes())
    third.unlink()
    with pytest.raises(SourceError, match=r"part-00000.* has \d+ rows, \d+ were written"):
        _drain(_reader(recorded))
    with pytest.raises(SourceError, match="partition 2 of the events' bid rows has no file"):
        _reader(recorded, 2, 3).poll(0)


def test_a_description_contains_all_options(tmp_path: Path) -> None:
    write_description(tmp_path, ORIGIN)
    assert read_description(tmp_path) == ORIGIN
    assert source_of({name: str(value) for name, value in described(ORIGIN).items() if value is not None}) == ORIGIN


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"events": 5, "evnet_rate": 3}, "there is no option 'evnet_rate': choose from events"),
        ({"seed": 3}, "the number of events is missing"),
        ({"events": "many"}, "an option of the events is wrong"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        source_of(options)


def _reader(
    source: NexmarkSource | RecordedEvents,
    index: int = 0,
    parallelism: int = 1,
    read_rows: int | None = None,
    columns: Columns = (None, None, None),
) -> StripeReader:
    reader = source.create(columns, read_rows)
    reader.open(index, parallelism)
    reader.seek({})
    return reader


def _drain(reader: StripeReader) -> list[Read]:
    reads = []
    while isinstance(read := reader.poll(0), Read):
        reads.append(read)
    return reads


def _without_checksum(read: Read) -> Read:
    return read._replace(checksum=0)
