"""What an object store's error means: which of them pass, and what a person has to do about the others.

The client raises few types of errors, and says the rest in their text: the answer of the server with its status and its
code, or why there was no answer.
"""

from __future__ import annotations

import re

from obstore.exceptions import NotSupportedError, PermissionDeniedError, UnauthenticatedError

from clonos_py.model.errors import (
    DAMAGED_REMEDY,
    CheckpointError,
    StorageUnavailableError,
    UnreadableCheckpointError,
    one_line,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})")
_CAUSE = re.compile(r'(?:message|error): "([^"]{1,200})"')
_NO_ANSWER = re.compile(r"HTTP error: (?!builder error)")
_UNAVAILABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_FULL = re.compile(r"Quota|StorageFull|InsufficientStorage")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_ENDPOINT = re.compile(r"performing [\w ]*?(https?://[^/\s]+)")
_INSTANCE_METADATA = ("169.254.169.254", "metadata.google.internal")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "a": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""By the beginning of the scheme: the variables of the environment with credentials."""


def explained(place: str, problem: Exception, reads: bool) -> CheckpointError:
    """The error for a request about ``place`` that has failed. ``reads``: whether it was to read what a checkpoint
    names."""
    text = str(problem)
    status, answer = _status(text), answered(text)
    if _NO_BUCKET.search(text):
        return CheckpointError(f"{place}: there is no such bucket ({answer}): create it, or name another one")
    if status == 507 or _FULL.search(_code(text)):
        return CheckpointError(
            f"{place}: the store is full ({answer}): free space or raise the quota, or resume with a copy elsewhere"
        )
    if status in (401, 403) or isinstance(problem, PermissionDeniedError | UnauthenticatedError):
        return CheckpointError(
            f"{place}: access is refused ({answer}): check {_credentials(place)}, and that they may read, write, list "
            "and delete there"
        )
    if isinstance(problem, FileNotFoundError):
        return UnreadableCheckpointError(f"{place} is missing; {DAMAGED_REMEDY}")
    if status in _UNAVAILABLE or (status is None and _NO_ANSWER.search(text)):
        return _unavailable(place, text, answer)
    if "redirect" in text:
        return CheckpointError(f"{place}: the bucket is in another region ({answer}): check AWS_REGION")
    kind = UnreadableCheckpointError if reads else CheckpointError
    return kind(f"{place}: the checkpoint folder does not work ({answer})")


def _unavailable(place: str, text: str, answer: str) -> CheckpointError:
    if any(at in text for at in _INSTANCE_METADATA):
        reason = f"the machine has no credentials for it: set {_credentials(place)}"
        return StorageUnavailableError(f"{place}: {reason} ({answer})")
    endpoint = _ENDPOINT.search(text)
    at = f" at {endpoint[1]}" if endpoint else ""
    return StorageUnavailableError(f"{place}: the store{at} does not answer ({answer})")


def _credentials(place: str) -> str:
    return next((named for scheme, named in _CREDENTIALS.items() if place.startswith(scheme)), "the credentials")


def does_not_compare(place: str) -> CheckpointError:
    """The error for a store that would create an object twice."""
    return CheckpointError(
        f"{place}: the store has no conditional writes (If-None-Match), by which one of two coordinators gets a "
        "generation: use one that has them, such as S3, GCS, Azure or MinIO"
    )


def is_not_supported(problem: Exception) -> bool:
    """Whether the store, or the client for it, does not know the request."""
    return isinstance(problem, NotSupportedError) or _status(str(problem)) == 501


def is_beyond_the_end(text: str) -> bool:
    """Whether a range was requested that begins behind the end of the object."""
    return _status(text) == 416 or "Invalid range" in text


def answered(text: str) -> str:
    """What the server said, or why there was no answer, in a few words."""
    status, code, said = _status(text), _code(text), _MESSAGE.search(text)
    if status is not None:
        words = ": ".join(part for part in (code, one_line(said[1]) if said else "") if part)
        return f"status {status}" + (f", {words}" if words else "")
    if "TimedOut" in text or "kind: Timeout" in text:
        return "no answer in time"
    cause = _CAUSE.search(text)
    return cause[1] if cause else one_line(text.partition("\n\nDebug source")[0])[:300]


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _code(text: str) -> str:
    found = _CODE.search(text)
    return found[1] if found else ""
