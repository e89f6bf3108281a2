"""Which logs the coordinator sends to the replacements of a round."""

from __future__ import annotations

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.job.events import ProcessDied
from clonos_py.model.messages import HeldLogsReport, Replay, Sever
from clonos_py.model.segments import LogSegment
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, deployed, sent


def test_a_replacement_gets_the_failed_upstream_logs_that_its_log_depends_on() -> None:
    stage = deployed()
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    severs = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    logs = {task: LogSegment(task.log_id, 0, 0, 0, 1, encode([InputOrder(0, 1)])) for task in (SOURCE, MIDDLE)}
    stage.answer([(process, sever) for process, sever in severs if process != stage.process(SINK)])
    replays = dict(
        sent(stage.say(HeldLogsReport(stage.process(SINK), severs[0][1].round, list(logs.values()), [])), Replay)
    )
    assert replays[stage.process(MIDDLE)].upstream == [logs[SOURCE]]
    assert replays[stage.process(SOURCE)].upstream == []


def test_a_replacement_gets_the_upstream_logs_that_the_longest_holders_of_its_log_have_whole() -> None:
    """The source lives, and may die before its new receiver has received from it: that must not make an orphan."""
    stage = deployed()
    severs = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    logs = {task: LogSegment(task.log_id, 0, 0, 0, 1, encode([InputOrder(0, 1)])) for task in (SOURCE, MIDDLE)}
    stage.answer([(process, sever) for process, sever in severs if process != stage.process(SINK)])
    number, whole = severs[0][1].round, [SOURCE.log_id]
    answer = HeldLogsReport(stage.process(SINK), number, list(logs.values()), [], whole=whole, ends={SOURCE.log_id: 1})
    (replay,) = dict(sent(stage.say(answer), Replay)).values()
    assert replay.upstream == [logs[SOURCE]]
    assert set(replay.complete) == {SOURCE.log_id, MIDDLE.log_id}
    assert replay.needs == {}
