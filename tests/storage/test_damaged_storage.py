"""After any damage to the files that a job has left in its storage, a run that resumes from them has the output of an
undisturbed run, or ends with an error of one line. It never has another output, and never hangs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos_py.model.errors import CheckpointError, ClonosError, error_line
from tests.storage import alone, written
from tests.storage.damages import (
    CASES,
    CASES_OF_FOLDERS,
    DAMAGES,
    KINDS,
    NOTHING_LEFT,
    Damage,
    cases_of_one,
    files,
    removed,
)

HEALED = {("causal rows", damage.__name__) for damage in DAMAGES}
"""Damage that does no harm: these rows are written again from the logs."""
HEALED |= {("staged table", "removed"), ("chunks", "grown"), ("journal", "grown")}
"""The next table replaces the one that is missing; what lies behind a chunk or a journal is not read."""


def named(value: object) -> str:
    return getattr(value, "__name__", str(value))


pytestmark = pytest.mark.timeout(300, method="thread")


@pytest.fixture(autouse=True)
def known_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of all code takes longer than the job."""
    monkeypatch.setattr("clonos_py.runtime.local.run.code_digest", lambda: "")


def outcome(folder: Path, before: dict[str, list[dict[str, Any]]]) -> ClonosError | None:
    """The error that ended the run, if one did. Fails for anything but that or the right result."""
    return outcome_of(partial(written.run, folder), partial(written.check, folder, before))


def outcome_of(run: Callable[[], None], check: Callable[[], None]) -> ClonosError | None:
    try:
        run()
    except ClonosError as error:
        problem = error
    else:
        check()
        return None
    assert type(problem) is not ClonosError, f"an unexpected exception: {problem}"
    assert len(str(problem).splitlines()) == 1
    assert not isinstance(problem, CheckpointError) or "is intact" not in error_line(problem), "it is damaged"
    return problem


def test_every_kind_of_file_is_present_and_the_job_can_resume_from_them(left: Path) -> None:
    for kind, (_, amount) in KINDS.items():
        assert len(files(left, kind)) >= amount, kind
    assert outcome(left, written.visible(left)) is None


@pytest.mark.parametrize(("kind", "number", "damage"), CASES, ids=named)
def test_damage_to_a_file_is_reported_or_has_no_effect(left: Path, kind: str, number: int, damage: Damage) -> None:
    before = written.visible(left)
    of_its_kind = files(left, kind)
    damage(of_its_kind[number], of_its_kind)
    problem = outcome(left, before)
    if kind != "causal rows":
        written.check_part(left, before)
    if number == 0 and (kind, damage.__name__) not in HEALED:
        assert problem is not None, "the newest file is needed: its damage must be reported"


@pytest.mark.parametrize(("folder", "damage"), CASES_OF_FOLDERS, ids=named)
def test_damage_to_folders_is_reported_or_has_no_effect(
    left: Path, folder: str, damage: Callable[[Path], None]
) -> None:
    before = written.visible(left)
    damage(left / folder)
    outcome(left, before)
    if (left / folder).is_file():
        (left / folder).unlink()  # else it is read as a result
    written.check_part(left, before)


@pytest.mark.parametrize(("kind", "damage"), cases_of_one(alone.KINDS), ids=named)
def test_damage_to_snapshots_taken_alone_is_reported_or_has_no_effect(
    left_alone: Path, kind: str, damage: Damage
) -> None:
    """A file may have bytes that only a delta needs. Without the delta, as no rows were committed with it, the job
    resumes from the manifest before."""
    path = alone.files(left_alone)[kind]
    content = path.read_bytes()
    damage(path, [path])
    problem = outcome_of(partial(alone.run, left_alone), partial(alone.check, left_alone))
    alone.check_part(left_alone)
    if (kind == "delta" or damage in NOTHING_LEFT) and (kind, damage) != ("delta", removed):
        assert problem is not None, "the file is needed: its damage must be reported"
    if problem is not None:
        put_back(path, content)
        assert outcome_of(partial(alone.run, left_alone), partial(alone.check, left_alone)) is None


def put_back(path: Path, content: bytes) -> None:
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(content)
