"""The digest of a job's code covers the modules that the user wrote, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
from helping import LIMIT
from clonos_py import Job
import clonos_py.connectors
"""
SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    __import__(name)
from clonos_py.runtime.user_code import code_digest
print(code_digest())
"""


def digest(folder: Path, *imports: str) -> str:
    """The digest in a process that imports these, with any hash seed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), *imports],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def written(folder: Path, limit: int = 3) -> Path:
    folder.mkdir()
    (folder / "nightly_job.py").write_text(JOB)
    (folder / "helping.py").write_text(f"LIMIT = {limit}\n")
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the job in some folder."""
    found = digest(written(tmp_path_factory.mktemp("code") / "there"), "nightly_job")
    assert len(found) == 32
    return found


def test_the_same_code_has_the_same_digest_in_any_folder_and_after_any_imports(tmp_path: Path, expected: str) -> None:
    assert digest(written(tmp_path / "here"), "helping", "nightly_job") == expected


def test_a_change_in_an_imported_module_changes_the_digest_and_one_in_another_file_does_not(
    tmp_path: Path, expected: str
) -> None:
    here = written(tmp_path / "here")
    (here / "unused.py").write_text("print('hello')\n")
    assert digest(here, "nightly_job") == expected
    (here / "helping.py").write_text("LIMIT = 4\n")
    assert digest(here, "nightly_job") != expected


def test_installed_packages_are_not_part_of_the_digest(tmp_path: Path, expected: str) -> None:
    assert digest(written(tmp_path / "here"), "nightly_job", "pyarrow", "msgspec") == expected
