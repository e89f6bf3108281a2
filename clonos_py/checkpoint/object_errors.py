"""What a problem with an object store means for checkpoints."""

from __future__ import annotations

from clonos_py.model.errors import (
    DAMAGED_REMEDY,
    CheckpointError,
    StorageUnavailableError,
    UnreadableCheckpointError,
)
from clonos_py.object_store.problems import ObjectStoreProblem, ProblemCause


def explained(problem: ObjectStoreProblem, reads: bool) -> CheckpointError:
    """The error for a request that has failed. ``reads``: whether it was to read what a checkpoint names."""
    said = f"{problem.place}: {problem}"
    match problem.cause:
        case ProblemCause.NO_BUCKET | ProblemCause.REFUSED | ProblemCause.REGION:
            return CheckpointError(said)
        case ProblemCause.FULL:
            return CheckpointError(f"{said}, or resume with a copy elsewhere")
        case ProblemCause.NO_ANSWER:
            return StorageUnavailableError(said)
        case ProblemCause.MISSING:
            return UnreadableCheckpointError(f"{problem.place} is missing; {DAMAGED_REMEDY}")
        case _:
            kind = UnreadableCheckpointError if reads else CheckpointError
            return kind(f"{problem.place}: the checkpoint folder does not work ({problem.answer})")


def does_not_compare(place: str) -> CheckpointError:
    """The error for a store that would create an object twice."""
    return CheckpointError(
        f"{place}: the store has no conditional writes (If-None-Match), by which one of two coordinators gets a "
        "generation: use one that has them, such as S3, GCS, Azure or MinIO"
    )
