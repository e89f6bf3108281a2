"""Files of a record that are missing, cut or altered: one line that names the file and a remedy of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos_py.checkpoint.layout import BASES
from tests.jobs.recorded import recorded, replayed


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


def files(folder: Path) -> list[Path]:
    """The files of the checkpoint folder that have content, but marks."""
    found = (path for path in (folder / "checkpoints").rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path.relative_to(folder) for path in found if path.parent.name != BASES)


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
    """In an interval that begins at the last base, with state, and in the whole record."""
    refused = set()
    for path in some_of_each_kind(record):
        for begin in ((), ("--checkpoint", "1000000")):
            with damaged(record / path, damage):
                before = files(record)
                ended = replayed(record, *begin)
                assert files(record) == before, "nothing is written"
            lines = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
            assert (ended.returncode, len(lines)) in ((0, 0), (1, 1)), (path, ended)
            if lines:
                refused.add(path.suffix)
                assert "Traceback" not in ended.stderr
                assert "--fresh" not in lines[0], (path, lines[0])
                assert any(remedy in lines[0] for remedy in ("choose", "restore")), (path, lines[0])
    assert {".record", ".chunks"} <= refused
    assert replayed(record).returncode == 0
