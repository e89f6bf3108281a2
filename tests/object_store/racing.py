"""A process that races for generations: ``python -m tests.object_store.racing URI TIMES JOB...``.

For each job and each number it tries to begin the generation, as a coordinator does that knows the one before. It
prints those that it has got, as JOB/NUMBER."""

from __future__ import annotations

import sys

from clonos_py.checkpoint.folders import open_folder
from clonos_py.checkpoint.generation_files import GenerationFiles
from clonos_py.model.errors import CheckpointError


def won(uri: str, times: int, job: str) -> list[str]:
    """The generations of a job that one coordinator has got."""
    files, numbers = GenerationFiles(open_folder(uri, job), job), []
    for number in range(1, times + 1):
        try:
            numbers.append(f"{job}/{files.begin(after=number - 1)}")
            files.adopt(number, None)
        except CheckpointError as problem:
            if "has taken over" not in str(problem):
                raise
    return numbers


if __name__ == "__main__":
    for job in sys.argv[3:]:
        sys.stdout.writelines(f"{number}\n" for number in won(sys.argv[1], int(sys.argv[2]), job))
