"""A few of the cases of ``tests/storage`` on real actors: the error reaches the user who runs the job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clonos_py.model.errors import ClonosError
from clonos_py.runtime.ray.cluster import Cluster
from tests.storage import written
from tests.storage.conftest import interrupted
from tests.storage.damages import Damage, a_fifo, files, flip_middle

__all__ = ["interrupted"]

pytestmark = [pytest.mark.ray, pytest.mark.timeout(200, method="thread")]

CASES: tuple[tuple[str, Damage, str], ...] = (
    ("chunks", flip_middle, "is corrupt: its checksum differs"),
    ("answer", flip_middle, "is corrupt: its checksum differs"),
    ("staged", flip_middle, "is not what was staged there"),
    ("journal", flip_middle, "rows that are not in the journals|exists, written by another run"),
    ("manifest", a_fifo, "is no regular file"),
)


@pytest.mark.thorough
def test_damage_is_reported_and_without_it_the_job_resumes(cluster: Cluster, interrupted: Path) -> None:
    left = interrupted.with_name("copy")
    before = written.visible(interrupted)
    for kind, damage, message in CASES:
        shutil.copytree(interrupted, left)
        of_its_kind = files(left, kind)
        damage(of_its_kind[0], of_its_kind)
        with pytest.raises(ClonosError, match=message) as caught:
            written.run(left, runtime="ray")
        assert type(caught.value) is not ClonosError
        assert len(str(caught.value).splitlines()) == 1
        written.check_part(left, before)
        shutil.rmtree(left)
    shutil.copytree(interrupted, left)
    written.run(left, runtime="ray")
    written.check(left, before)
