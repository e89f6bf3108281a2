"""The default folder of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.model.errors import SettingError
from clonos_py.runtime.ray.folders import folders, scratch_path


def test_a_job_on_several_machines_needs_a_shared_checkpoint_folder() -> None:
    with pytest.raises(SettingError) as refused, folders("job", None, {"north", "south"}, scratch_path()):
        pass
    assert str(refused.value) == (
        "the job runs on 2 machines (north, south), and its checkpoints have no place that all of them reach: give "
        "--checkpoints a shared folder or a URI such as s3://bucket/folder"
    )


def test_a_given_folder_is_used_on_any_number_of_machines() -> None:
    with folders("job", "s3://bucket/folder", {"north", "south"}, scratch_path()) as (scratch, checkpoints):
        assert checkpoints == "s3://bucket/folder"
        (scratch / "socket").touch()
    assert not scratch.exists()


def test_on_one_machine_checkpoints_are_temporary() -> None:
    with folders("job", None, {"north"}, scratch_path()) as (_, checkpoints):
        assert Path(checkpoints).is_dir()
    assert not Path(checkpoints).exists()
