"""A folder in a real object store: the contract of all folders, races for a generation, and what goes wrong there."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings

from clonos_py.checkpoint import object_folder
from clonos_py.checkpoint.folder import Folder
from clonos_py.checkpoint.folders import open_folder
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.errors import CheckpointError, StorageUnavailableError
from clonos_py.object_store import client
from tests.folder_contract import CASES, STEPS, Step, compare, races
from tests.s3_server import BUCKET, BUSY, FULL, QUOTA, Refusal, S3Server
from tests.unit.checkpoint.stores import FIRST, JOB, chunk, manifest, snapshot


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_contract(case: Callable[[Folder], None], uri: str) -> None:
    case(open_folder(uri, "jobs", "hot auctions"))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_folder_is_a_dict_of_files(steps: Sequence[Step], uri: str, s3: S3Server) -> None:
    folder = open_folder(uri)
    for name in ("", "b", "b/c2"):
        folder.remove_all([f"{name}/{file}".lstrip("/") for file in folder.sizes(name)])
    compare(folder, steps)


@pytest.mark.parametrize("times", [100, pytest.param(1_000, marks=pytest.mark.thorough)])
def test_each_race_of_threads_for_a_file_has_one_winner(times: int, uri: str) -> None:
    assert races([open_folder(uri) for _ in range(4)], times) == [1] * times


@pytest.mark.parametrize("jobs", [1, pytest.param(20, marks=pytest.mark.thorough)])
def test_each_race_of_processes_for_a_generation_has_one_winner(jobs: int, uri: str) -> None:
    """With 20 jobs these are 1,000 races."""
    names = [f"job-{number}" for number in range(jobs)]
    command = [sys.executable, "-m", "tests.object_store.racing", uri, "50", *names]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    won = [racer.communicate()[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * len(racers)
    assert sorted(chain.from_iterable(won)) == sorted(f"{name}/{number}" for name in names for number in range(1, 51))
    assert sum(map(bool, won)) > 1, "there was no race"


@pytest.mark.parametrize("size_bytes", [0, 1, 99, 100, 101, 1_000])
def test_a_large_file_is_written_and_read_in_parts(
    size_bytes: int, uri: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers take no parts below 5 MiB, so only the reader's are small here."""
    folder = open_folder(uri)
    content = random.Random(size_bytes).randbytes(size_bytes)
    folder.write("a", content)
    monkeypatch.setattr(object_folder, "_RANGE_BYTES", 100)
    monkeypatch.setattr(object_folder, "_GAP_BYTES", 10)
    ranges = [(0, size_bytes), (50, 200), (0, 1 << 60), (size_bytes // 2, 30)]
    found = folder.read_ranges("a", ranges)
    assert [part.to_pybytes() for part in found] == [content[at : at + size] for at, size in ranges]


def test_a_file_is_written_in_parts_when_it_is_large(uri: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PART_BYTES", 5 << 20)
    folder, content = open_folder(uri), random.Random(1).randbytes((10 << 20) + 1)
    folder.write("a", content)
    assert folder.read("a").to_pybytes() == content
    assert s3.requests["put"] == folder.requests["put"] == 5
    assert folder.names("") == ["a"]


def test_ranges_that_lie_close_together_are_one_request(uri: str, s3: S3Server) -> None:
    folder = open_folder(uri)
    folder.write("a", bytes(4 << 20))
    s3.requests.clear()
    folder.read_ranges("a", [(1 << 20, 10), (0, 10), (3 << 20, 1 << 20)])
    assert s3.requests == {"get": 2}


def test_a_checkpoint_takes_few_requests_which_are_counted(uri: str, s3: S3Server) -> None:
    store, counted = CheckpointStore(uri, JOB), []
    store.open_generation()
    for checkpoint in range(1, 7):
        before = Counter(store.requests)
        store.write_manifest(manifest(checkpoint, store.write(snapshot(checkpoint, [chunk(checkpoint)]), FIRST)))
        store.retire(keep=2)
        counted.append(dict(Counter(store.requests) - before))
        assert store.requests == s3.requests
    assert counted[3:] == [{"put": 2, "list": 4, "delete": 1}] * 3


def test_marks_of_folders_are_no_files(uri: str, s3: S3Server) -> None:
    """Browsers of buckets make them, and so did earlier versions."""
    folder = open_folder(uri)
    folder.write("state/a", b"content")
    for key in (f"{uri}/state/", f"{uri}/state/below/"):
        s3.client().put_object(Bucket=BUCKET, Key=key.removeprefix(f"s3://{BUCKET}/"), Body=b"")
    assert folder.sizes("state") == {"a": 7}
    assert folder.names("state") == ["a", "below"]
    assert folder.names("") == ["state"]


# ---- creations whose answer is lost


def test_a_creation_whose_answer_is_lost_has_one_winner(uri: str, s3: S3Server) -> None:
    first, second = open_folder(uri), open_folder(uri)
    assert first.create("before", b"")
    s3.lost_answers = 1
    assert first.create("a", b"first")
    assert not second.create("a", b"first")
    assert not first.create("a", b"first")


def test_a_creation_that_is_repeated_after_an_outage_is_found(uri: str, s3: S3Server, impatient: None) -> None:
    first, second = open_folder(uri), open_folder(uri)
    assert first.create("before", b"")
    s3.lost_answers, s3.cut_off_after = 1, 1
    with pytest.raises(StorageUnavailableError, match=r"a: the store at http://127.0.0.1:\d+ does not answer"):
        first.create("a", b"first")
    s3.heal()
    assert not second.create("a", b"second")
    assert first.create("a", b"first")
    assert not first.create("a", b"first")


@pytest.mark.parametrize("requests", range(1, 12))
def test_a_generation_that_is_opened_again_after_an_outage_is_the_same(
    requests: int, uri: str, s3: S3Server, impatient: None
) -> None:
    """The store is cut off after so many requests, and the first creation gets no answer. The call is repeated, as
    after any StorageUnavailableError."""
    store = CheckpointStore(uri, "hot auctions")
    assert store.open_generation() == 1
    s3.cut_off_after, s3.lost_answers = requests, 1
    try:
        number = store.open_generation(after=1)
    except StorageUnavailableError:
        s3.heal()
        number = store.open_generation(after=1)
    s3.heal()
    assert number == 2
    other = CheckpointStore(uri, "hot auctions")
    assert other.open_generation() == 3
    with pytest.raises(CheckpointError, match="generation 3 has taken over"):
        store.open_generation(after=2)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_store_that_would_create_an_object_twice_is_refused(
    refuses: bool, uri: str, s3: S3Server, impatient: None
) -> None:
    """Some do not know the condition and say so, some do not heed it."""
    s3.compares = False
    if refuses:
        s3.refusal, s3.refused = Refusal(501, "NotImplemented", "A header"), frozenset({"PUT"})
    with pytest.raises(
        CheckpointError, match=r"00000001: the store has no conditional writes .*: use one that has them"
    ):
        CheckpointStore(uri, "hot auctions").open_generation()


# ---- what goes wrong

WRONG = {
    "full": (FULL, r"the store is full \(status 507, XMinioStorageFull: Storage backend .*\): free space or raise"),
    "quota": (QUOTA, r"the store is full \(status 403, QuotaExceeded: Bucket quota exceeded\): free space or raise"),
    "refused": (Refusal(403, "AccessDenied", "Access Denied"), r"access is refused \(status 403, AccessDenied: Access"),
    "no user": (Refusal(401, "Unauthorized", "?"), r"access is refused \(status 401.*check .*AWS_ACCESS_KEY_ID"),
    "elsewhere": (Refusal(301, "PermanentRedirect", "?"), r"the bucket is in another region \(.*\): check AWS_REGION"),
    "unknown": (
        Refusal(400, "InvalidRequest", "of no kind"),
        r"does not work \(status 400, InvalidRequest: of no kind",
    ),
}
CALLS: Mapping[str, Callable[[Folder], object]] = {
    "write": lambda folder: folder.write("state/a", b"content"),
    "create": lambda folder: folder.create("state/a", b"content"),
    "read": lambda folder: folder.read("state/a"),
    "read_ranges": lambda folder: folder.read_ranges("state/a", [(0, 4)]),
    "names": lambda folder: folder.names("state"),
    "remove": lambda folder: folder.remove("state/a"),
    "remove_folder": lambda folder: folder.remove_folder("state"),
    "move": lambda folder: folder.move("state", "archive"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_each_refusal_is_one_line_that_names_place_and_remedy(
    call: str, wrong: str, uri: str, s3: S3Server, impatient: None
) -> None:
    folder = open_folder(uri)
    s3.refusal, line = WRONG[wrong]
    with pytest.raises(CheckpointError, match=f"^{uri}/state(/a)?: .*{line}") as raised:
        CALLS[call](folder)
    assert not isinstance(raised.value, StorageUnavailableError)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("trouble", ["busy", "cut off", "no such host", "refused connection"])
def test_what_may_pass_is_unavailable(
    call: str, trouble: str, uri: str, s3: S3Server, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.refusal, s3.cut_off = BUSY if trouble == "busy" else None, trouble == "cut off"
    if trouble == "no such host":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://nowhere.invalid:1")
    if trouble == "refused connection":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(
        StorageUnavailableError, match=f"^{uri}/state(/a)?: the store at http://[^ ]+ does not answer"
    ) as raised:
        CALLS[call](open_folder(uri))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"remove"}))
def test_a_missing_bucket_is_named(call: str, s3: S3Server) -> None:
    with pytest.raises(CheckpointError, match=r"^s3://no-such/path/state(/a)?: there is no such bucket .*NoSuchBucket"):
        CALLS[call](open_folder("s3://no-such/path"))


@pytest.mark.parametrize("call", CALLS)
def test_wrong_credentials_are_named(call: str, uri: str, s3: S3Server) -> None:
    s3.ask_for_credentials(True)
    try:
        with pytest.raises(
            CheckpointError, match=r"access is refused .*InvalidAccessKeyId.*check .*AWS_SECRET_ACCESS_KEY"
        ):
            CALLS[call](open_folder(uri))
    finally:
        s3.ask_for_credentials(False)


def test_what_passes_soon_is_not_noticed(uri: str, s3: S3Server) -> None:
    """The client tries again."""
    folder = open_folder(uri)
    s3.busy_answers = 2
    folder.write("a", b"content")
    s3.busy_answers = 2
    assert folder.read("a").to_pybytes() == b"content"


def test_files_that_cannot_be_deleted_are_reported(uri: str, s3: S3Server, impatient: None) -> None:
    folder = open_folder(uri)
    for path in ("a", "b"):
        folder.write(path, b"")
    s3.refusal = Refusal(403, "AccessDenied", "Access Denied")
    (problem,) = folder.remove_all(["a", "b"])
    assert "access is refused" in str(problem)
    s3.heal()
    assert folder.remove_all(["a", "b"]) == []
    assert folder.names("") == []
