"""The jobs that have checkpoints in a folder, which several may share."""

from __future__ import annotations

from urllib.parse import unquote

from clonos_py.checkpoint.folders import open_folder
from clonos_py.model.errors import SettingError


def jobs_in(folder: str) -> list[str]:
    """Their names."""
    return [unquote(name) for name in open_folder(folder).names("")]


def jobs_text(folder: str) -> str:
    jobs = jobs_in(folder)
    return f"{folder} has the jobs {', '.join(map(repr, jobs))}" if jobs else f"there are no jobs in {folder}"


def only_job(folder: str, job: str | None, option: str) -> str:
    """The job that is named, or the only one of the folder. ``option``: how users name one. Raises SettingError if
    there are several, or none."""
    if job is not None:
        return job
    jobs = jobs_in(folder)
    if not jobs:
        raise SettingError(f"{jobs_text(folder)}: give the folder of checkpoints that a job has written")
    if len(jobs) > 1:
        raise SettingError(f"say which job with {option}: {jobs_text(folder)}")
    return jobs[0]


def existing_job(folder: str, job: str) -> str:
    """The job, if the folder has it. Raises SettingError otherwise."""
    if job not in jobs_in(folder):
        raise SettingError(f"there is no job {job!r}: {jobs_text(folder)}")
    return job
