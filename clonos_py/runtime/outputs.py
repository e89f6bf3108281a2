"""What a link asks of the sinks of its task: to commit, and of causal ones to take over and to write their output."""

from __future__ import annotations

from collections.abc import Mapping

from clonos_py.model.operators import CausalSink, Sink
from clonos_py.task.instructions import (
    ClaimOutput,
    Commit,
    CommitDone,
    LinkEvent,
    OutputClaimed,
    OutputWritten,
    SettleOutput,
    SinkWork,
    WriteOutput,
)


def work(wish: SinkWork, sinks: Mapping[str, Sink]) -> LinkEvent:
    """Carries a wish out and says what came of it. Raises SinkError."""
    match wish:
        case Commit(checkpoint, committables):
            for name, named in committables.items():
                for committable in named if name in sinks else ():
                    sinks[name].commit(committable)
            return CommitDone(checkpoint)
        case ClaimOutput(number, name, attempt, checkpoint, shape):
            return OutputClaimed(number, _causal(sinks, name).claim(attempt, checkpoint, shape))
        case WriteOutput(number, name, epoch, log, pieces):
            _causal(sinks, name).append(epoch, log, pieces)
            return OutputWritten(number, len(pieces))
        case SettleOutput(number, name):
            _causal(sinks, name).settle()
            return OutputWritten(number, 0)


def _causal(sinks: Mapping[str, Sink], name: str) -> CausalSink:
    sink = sinks[name]
    assert isinstance(sink, CausalSink)
    return sink
