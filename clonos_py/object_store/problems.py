"""What an object store's error means: which of them pass, and what a person has to do about the others.

The client raises few types of errors, and says the rest in their text: the answer of the server with its status and its
code, or why there was no answer.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from obstore.exceptions import NotSupportedError, PermissionDeniedError, PreconditionError, UnauthenticatedError

from clonos_py.model.errors import one_line

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})")
_CAUSE = re.compile(r'(?:message|error): "([^"]{1,200})"')
_NO_ANSWER = re.compile(r"HTTP error: (?!builder error)")
_UNAVAILABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_FULL = re.compile(r"Quota|StorageFull|InsufficientStorage")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired")
"""S3 answers expired credentials with status 400."""
_ENDPOINT = re.compile(r"performing [\w ]*?(https?://[^/\s]+)")
_INSTANCE_METADATA = ("169.254.169.254", "metadata.google.internal")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "a": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""By the beginning of the scheme: the variables of the environment with credentials."""


class ProblemCause(Enum):
    """Why a request has failed."""

    NO_BUCKET = auto()
    FULL = auto()
    REFUSED = auto()
    """Credentials are missing, wrong or expired, or do not allow the request."""
    MISSING = auto()
    REPLACED = auto()
    """The object is no longer the version that was requested."""
    BEYOND_THE_END = auto()
    NO_ANSWER = auto()
    """The store does not answer, or has too much to do: the same request may succeed later."""
    REGION = auto()
    NOT_SUPPORTED = auto()
    OTHER = auto()


class ObjectStoreProblem(OSError):
    """A request about ``place``, the URI of an object or folder, has failed. The text is one line without the place,
    with the remedy where the meaning does not depend on what the object is for. ``answer``: what the server said."""

    def __init__(self, place: str, cause: ProblemCause, text: str, answer: str) -> None:
        super().__init__(text)
        self.place, self.cause, self.answer = place, cause, answer


class MissingObject(ObjectStoreProblem, FileNotFoundError):
    """There is no such object."""


def understood(place: str, problem: Exception) -> ObjectStoreProblem:
    """The meaning of an error of the client."""
    text = str(problem)
    cause, answer = _cause(problem, text), answered(text)
    kind = MissingObject if cause is ProblemCause.MISSING else ObjectStoreProblem
    return kind(place, cause, _said(cause, place, text, answer), answer)


def _cause(problem: Exception, text: str) -> ProblemCause:
    status = _status(text)
    if _NO_BUCKET.search(text):
        return ProblemCause.NO_BUCKET
    if status == 507 or _FULL.search(_code(text)):
        return ProblemCause.FULL
    if status in (401, 403) or _EXPIRED.search(_code(text)):
        return ProblemCause.REFUSED
    if isinstance(problem, PermissionDeniedError | UnauthenticatedError):
        return ProblemCause.REFUSED
    if isinstance(problem, FileNotFoundError):
        return ProblemCause.MISSING
    if isinstance(problem, PreconditionError) or status == 412:
        return ProblemCause.REPLACED
    if status == 416 or "Invalid range" in text:
        return ProblemCause.BEYOND_THE_END
    if status in _UNAVAILABLE or (status is None and _NO_ANSWER.search(text)):
        return ProblemCause.NO_ANSWER
    if isinstance(problem, NotSupportedError) or status == 501:
        return ProblemCause.NOT_SUPPORTED
    return ProblemCause.REGION if "redirect" in text else ProblemCause.OTHER


def _said(cause: ProblemCause, place: str, text: str, answer: str) -> str:
    match cause:
        case ProblemCause.NO_BUCKET:
            return f"there is no such bucket ({answer}): create it, or name another one"
        case ProblemCause.FULL:
            return f"the store is full ({answer}): free space or raise the quota"
        case ProblemCause.REFUSED:
            return (
                f"access is refused ({answer}): check {_credentials(place)}, and that they may read, write, list and "
                "delete there"
            )
        case ProblemCause.NO_ANSWER if any(at in text for at in _INSTANCE_METADATA):
            return f"the machine has no credentials for it: set {_credentials(place)} ({answer})"
        case ProblemCause.NO_ANSWER:
            endpoint = _ENDPOINT.search(text)
            return f"the store{f' at {endpoint[1]}' if endpoint else ''} does not answer ({answer})"
        case ProblemCause.REPLACED:
            return f"another object has taken its place ({answer}): objects that are read must stay as they are"
        case ProblemCause.REGION:
            return f"the bucket is in another region ({answer}): check AWS_REGION"
        case _:
            return answer


def _credentials(place: str) -> str:
    return next((named for scheme, named in _CREDENTIALS.items() if place.startswith(scheme)), "the credentials")


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
