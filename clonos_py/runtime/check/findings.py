"""The findings of a check, and the remedy for each kind."""

from __future__ import annotations

from enum import Enum

import msgspec


class FindingKind(Enum):
    """The kind of nondeterminism that was found: a call that bypasses ``ctx``, or differing outputs or questions."""

    TIME = "time"
    WAIT = "wait"
    RANDOM = "random"
    UUID = "uuid"
    NETWORK = "network"
    THREAD = "thread"
    FILE = "file"
    OUTPUT = "output"
    QUESTION = "question"


REMEDIES = {
    FindingKind.TIME: "call ctx.time.now(), whose answers are logged",
    FindingKind.WAIT: "set a timer, or await ctx.sleep() in an `async def` function",
    FindingKind.RANDOM: "use ctx.random, which is seeded through the log",
    FindingKind.UUID: "make it of logged bits: uuid.UUID(int=ctx.random.getrandbits(128), version=4)",
    FindingKind.NETWORK: "use ctx.http, or call a client that a function declared with @service opens, with ctx.call",
    FindingKind.THREAD: "write an `async def` function that awaits ctx.http, ctx.call or ctx.sleep",
    FindingKind.FILE: "read it in a function declared with @service, and call that with ctx.call",
    FindingKind.OUTPUT: "what it gives may depend on the row, its state and ctx alone: not on the order of a set, "
    "hash() or id() of an object, variables that outlive a call, or the environment",
    FindingKind.QUESTION: "what it asks of ctx may depend on the row, its state and earlier answers alone",
}


class Finding(msgspec.Struct, frozen=True, order=True):
    """One finding. ``where``: file and line. ``what``: what was found there."""

    operator: str
    where: str
    kind: FindingKind
    what: str

    def __str__(self) -> str:
        return f"{self.where}: operator {self.operator!r} {self.what}; {REMEDIES[self.kind]}"
