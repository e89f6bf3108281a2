"""What every folder of checkpoints does, on a disk and in an object store: each case is a test of any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

from clonos_py.checkpoint.folder import Folder
from clonos_py.model.errors import UnreadableCheckpointError

RACERS = 8


def a_file_is_read_back_and_replaced_whole(folder: Folder) -> None:
    for content in (b"first", b"", bytes(range(256)) * 40, memoryview(b"a view of it")[2:6]):
        folder.write("state/a", content)
        assert folder.read("state/a").to_pybytes() == bytes(content)


def the_memory_of_a_written_file_may_be_used_again(folder: Folder) -> None:
    buffer = bytearray(b"written")
    folder.write("a", memoryview(buffer))
    assert folder.create("b", memoryview(buffer))
    buffer[:] = b"changed"
    assert [folder.read(path).to_pybytes() for path in ("a", "b")] == [b"written"] * 2


def a_file_is_created_once(folder: Folder) -> None:
    assert folder.create("generations/1", b"first")
    assert not folder.create("generations/1", b"first")
    assert not folder.create("generations/1", b"second")
    assert folder.read("generations/1").to_pybytes() == b"first"
    folder.remove("generations/1")
    assert folder.create("generations/1", b"third")


def a_written_file_is_not_created(folder: Folder) -> None:
    folder.write("a", b"written")
    assert not folder.create("a", b"created")
    assert folder.read("a").to_pybytes() == b"written"


def a_missing_file_is_named(folder: Folder) -> None:
    folder.write("state/other", b"content")
    for read in (lambda: folder.read("state/a"), lambda: folder.read_ranges("state/a", [(0, 3)])):
        with pytest.raises(UnreadableCheckpointError, match=r"state/a is missing; restore the file from a copy"):
            read()


def ranges_are_read_in_the_order_of_the_request(folder: Folder) -> None:
    content = bytes(range(200))
    folder.write("a", content)
    ranges = [(100, 50), (0, 3), (3, 0), (3, 7), (3, 7), (199, 1), (90, 20)]
    found = folder.read_ranges("a", ranges)
    assert [part.to_pybytes() for part in found] == [content[at : at + size] for at, size in ranges]
    assert folder.read_ranges("a", []) == []


def ranges_beyond_the_end_return_the_bytes_before_it(folder: Folder) -> None:
    folder.write("a", b"content")
    for ranges, expected in (
        ([(0, 3), (5, 9)], [b"con", b"nt"]),
        ([(0, 3), (5, 9), (9, 2), (2, 1 << 60)], [b"con", b"nt", b"", b"ntent"]),
        ([(7, 1)], [b""]),
        ([(1 << 60, 1)], [b""]),
    ):
        assert [part.to_pybytes() for part in folder.read_ranges("a", ranges)] == expected
    folder.write("empty", b"")
    assert [part.to_pybytes() for part in folder.read_ranges("empty", [(0, 4)])] == [b""]


def a_listing_has_what_is_directly_in_the_folder(folder: Folder) -> None:
    assert folder.names("line") == []
    assert folder.sizes("line") == {}
    for path, content in {"line/b": b"1234", "line/a": b"", "line/c/d": b"1", "line-2/e": b"12", "lin/e": b"1"}.items():
        folder.write(path, content)
    assert folder.names("line") == ["a", "b", "c"]
    assert folder.sizes("line") == {"a": 0, "b": 4}
    assert folder.names("") == ["lin", "line", "line-2"]
    assert folder.sizes("") == {}


def any_name_of_a_file_is_kept(folder: Folder) -> None:
    names = sorted(
        ["a b", "ä€😀", "%2F", "%", "a+b&c=d", "~", "#1", "a..b", "..a", "it's", '"', "A", "*?[x]", "x" * 150]
    )
    for name in names:
        folder.write(f"jobs/{name}/file", name.encode())
    assert folder.names("jobs") == names
    for name in names:
        assert folder.read(f"jobs/{name}/file").to_pybytes() == name.encode()


def deleting_what_is_gone_is_no_error(folder: Folder) -> None:
    for path in ("a", "b", "c/d"):
        folder.write(path, b"content")
    folder.remove("a")
    folder.remove("a")
    assert folder.remove_all(["a", "b", "nowhere/e"]) == []
    assert folder.remove_all([]) == []
    folder.remove_folder("nowhere")
    assert folder.names("") == ["c"]


def a_deleted_folder_takes_no_neighbour_with_it(folder: Folder) -> None:
    for path in ("runs/1/job", "runs/1/end", "runs/10/job", "runs/2/job"):
        folder.write(path, b"content")
    folder.remove_folder("runs/1")
    assert folder.names("runs") == ["10", "2"]


def a_moved_folder_keeps_its_files(folder: Folder) -> None:
    for path in ("line/state/a", "line/manifests/b", "line/c", "line-2/d"):
        folder.write(path, path.encode())
    folder.move("line", "archive/0001")
    assert folder.names("line") == []
    assert folder.names("archive/0001") == ["c", "manifests", "state"]
    for path in ("state/a", "manifests/b", "c"):
        assert folder.read(f"archive/0001/{path}").to_pybytes() == f"line/{path}".encode()
    assert folder.names("line-2") == ["d"]


CASES: Sequence[Callable[[Folder], None]] = (
    a_file_is_read_back_and_replaced_whole,
    the_memory_of_a_written_file_may_be_used_again,
    a_file_is_created_once,
    a_written_file_is_not_created,
    a_missing_file_is_named,
    ranges_are_read_in_the_order_of_the_request,
    ranges_beyond_the_end_return_the_bytes_before_it,
    a_listing_has_what_is_directly_in_the_folder,
    any_name_of_a_file_is_kept,
    deleting_what_is_gone_is_no_error,
    a_deleted_folder_takes_no_neighbour_with_it,
    a_moved_folder_keeps_its_files,
)


@dataclass(frozen=True)
class Step:
    """A call of a folder."""

    method: str
    path: str
    content: bytes = b""


_PATHS = st.sampled_from(["a", "b/a", "b/c", "b/c2/d", "e"])
STEPS = st.lists(
    st.one_of(
        st.builds(Step, st.sampled_from(["write", "create"]), _PATHS, st.binary(max_size=40)),
        st.builds(Step, st.sampled_from(["remove", "read"]), _PATHS),
    ),
    max_size=20,
)
"""Calls in any order. No path of a file is that of a folder."""


def compare(folder: Folder, steps: Sequence[Step]) -> None:
    """Takes the steps with an empty folder and with a dict: both have the same files after each of them."""
    files: dict[str, bytes] = {}
    for step in steps:
        match step.method:
            case "write":
                folder.write(step.path, step.content)
                files[step.path] = step.content
            case "create":
                assert folder.create(step.path, step.content) is (step.path not in files)
                files.setdefault(step.path, step.content)
            case "remove":
                folder.remove(step.path)
                files.pop(step.path, None)
            case _ if step.path in files:
                content, parts = files[step.path], [(0, 5), (3, 30), (45, 2)]
                assert folder.read(step.path).to_pybytes() == content
                found = [part.to_pybytes() for part in folder.read_ranges(step.path, parts)]
                assert found == [content[at : at + size] for at, size in parts]
        for below in ("", "b", "b/c2"):
            prefix = f"{below}/" if below else ""
            assert folder.sizes(below) == {
                path.removeprefix(prefix): len(content)
                for path, content in files.items()
                if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
            }


def races(opened: Sequence[Folder], times: int) -> list[int]:
    """Has all folders, which are the same one opened several times, create the same files at the same moments. Returns
    how many winners each of ``times`` races had."""
    winners: list[list[int]] = [[] for _ in range(times)]
    start = threading.Barrier(len(opened))

    def run(number: int) -> None:
        try:
            for race in range(times):
                start.wait()
                if opened[number].create(f"generations/{race}", b"%d" % number):
                    winners[race].append(number)
        except BaseException:
            start.abort()
            raise

    with ThreadPoolExecutor(len(opened)) as threads:
        for _ in threads.map(run, range(len(opened))):
            pass
    for race, won in enumerate(winners):
        assert [opened[0].read(f"generations/{race}").to_pybytes()] == [b"%d" % number for number in won]
    return [len(won) for won in winners]
