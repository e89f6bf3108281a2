"""Errors of input files, with the file's path and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from clonos_py.model.errors import SourceError, one_line

UNCHANGED = "input files must stay as they are until the job has ended"
REPLACED = "give new rows a file with another name, which sorts after the others, or start over with --fresh"
ONLY_GROW = "a followed file may only grow; write what is new to a file with another name"
MOVE = "move files that have been read to another folder, or to names that begin with . or _"
ENDED = "a followed file that was removed is at its end; write new rows to a file with another name"


def folder_gone(folder: str) -> SourceError:
    """If the folder of followed files is missing, none of them was removed."""
    return SourceError(
        f"{folder}: the folder of the followed files is gone, or another file system is mounted there: put it back, "
        "and run the job again, which goes on from its last checkpoint"
    )


def file_gone(path: str) -> SourceError:
    """A single followed file is missing when a run resumes, or when a task starts again after a failure."""
    return SourceError(
        f"{path}: the followed file is missing, which was there at the last checkpoint: put it back, and run the job "
        "again, which goes on from there; or start over with --fresh"
    )


@contextmanager
def named_errors(path: str) -> Iterator[None]:
    """Turns errors of the operating system and of Arrow into SourceErrors."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(f"{path} is missing; {UNCHANGED}") from error
    except (OSError, pa.ArrowException, StopIteration) as error:
        raise SourceError(f"{path}: cannot be read ({one_line(error)})") from error


@contextmanager
def said_if_missing(said: str) -> Iterator[None]:
    """Lets the error of ``named_errors`` about a file that is missing say this instead."""
    try:
        yield
    except SourceError as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            raise SourceError(said) from problem
        raise
