"""Files of a record that are missing, cut or altered: one line that names the file and a remedy of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.jobs.recorded import JOB, Ended, recorded, replayed


def _altered(content: bytes) -> bytes:
    at = len(content) * 2 // 3
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
    "altered": _altered,
}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job with a record, of which a part with state can be replayed."""
    folder = tmp_path_factory.mktemp("damaged")
    recorded(folder)
    return folder


FAILS = JOB.replace(
    "def double(row: Txn) -> Doubled:\n",
    """@service
def documents() -> Iterator[Callable[[int], str]]:
    yield lambda number: f"{number:9}" * 10_000

def double(row: Txn, ctx: Context) -> Doubled:
    if row.id % 100 == 0:
        assert int(ctx.call(documents, row.id)[:9]) == row.id
    if row.id == 598:
        raise ValueError("the last one")
""",
).replace("import AsyncIterator", "import AsyncIterator, Callable")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job with large answers of a service, which has failed."""
    folder = tmp_path_factory.mktemp("failed")
    with pytest.raises(AssertionError, match="the last one"):
        recorded(folder, FAILS)
    return folder


def files(folder: Path) -> list[Path]:
    """The files of the checkpoint folder that have content."""
    found = (path for path in (folder / "checkpoints").rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path.relative_to(folder) for path in found)


def some_of_each_kind(folder: Path) -> list[Path]:
    """The first file of each kind, such as the state of a base, and the last one."""
    found = files(folder)
    first = {(path.parent.name, path.suffix): path for path in reversed(found)}
    last = {(path.parent.name, path.suffix): path for path in found}
    return sorted({*first.values(), *last.values()})


@contextmanager
def damaged(path: Path, damage: str) -> Iterator[None]:
    content = path.read_bytes()
    given = DAMAGES[damage](content)
    path.unlink()
    if given is not None:
        path.write_bytes(given)
    try:
        yield
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_one_line_with_a_remedy_or_is_not_needed(record: Path, damage: str) -> None:
    """In an interval that begins at the last base, with state, and in the whole record. Of a mark of a base only the
    name counts."""
    refused, kinds = set(), some_of_each_kind(record)
    assert {".base", ".chunks", ".manifest", ".record"} <= {path.suffix for path in kinds}
    for path in kinds:
        for begin in ((), ("--checkpoint", "1000000")):
            refused.update(refused_for(record, path, damage, *begin))
    assert {".record", ".chunks"} <= refused - {".base"} == refused
    assert replayed(record).returncode == 0


def refused_for(folder: Path, path: Path, damage: str, *begin: str) -> list[str]:
    """The suffix of a file if a replay is refused that needs it; else the replay is as without the damage."""
    with damaged(folder / path, damage):
        before = files(folder)
        ended = replayed(folder, *begin)
        assert files(folder) == before, "nothing is written"
    assert "Traceback" not in ended.stderr
    lines = errors(ended)
    if ended.returncode == 0 and not lines:
        return []
    assert (ended.returncode, len(lines)) == (1, 1), (path, ended)
    if "the last one" in lines[0]:
        return []
    assert "--fresh" not in lines[0], (path, lines[0])
    assert any(remedy in lines[0] for remedy in ("choose", "restore")), (path, lines[0])
    return [path.suffix]


def errors(ended: Ended) -> list[str]:
    return [line for line in ended.stderr.splitlines() if line.startswith("error:")]


@pytest.mark.parametrize("damage", DAMAGES)
def test_answers_and_what_a_failed_job_held_are_not_replaced_by_something_else(failed: Path, damage: str) -> None:
    kinds = [path for path in some_of_each_kind(failed) if path.suffix in (".answer", ".tail")]
    refused = {suffix for path in kinds for suffix in refused_for(failed, path, damage)}
    assert {path.suffix for path in kinds} == {".answer", ".tail"}
    assert refused == ({".answer"} if damage == "missing" else {".answer", ".tail"})
    assert "the last one" in replayed(failed).stderr


def test_a_file_is_missing_of_what_a_task_held_when_its_job_failed(failed: Path) -> None:
    """So it may be if the process had died. What others held of the log of the task is replayed."""
    assert "no file has what" not in replayed(failed).stderr
    for path in files(failed):
        if path.suffix == ".tail":
            with damaged(failed / path, "missing"):
                ended = replayed(failed)
            vertex, index = path.name.split(".")[1].rsplit("-", 1)
            assert f"note: no file has what {vertex}[{index}] held when the job failed" in ended.stderr
