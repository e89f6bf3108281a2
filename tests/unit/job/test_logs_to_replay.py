"""Which logs the coordinator sends to the replacements of a round."""

from __future__ import annotations

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import Order
from clonos_py.job.events import ProcessDied
from clonos_py.model.messages import Holdings, Replay, Sever
from clonos_py.model.segments import Segment
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, chain, deployed, sent


def test_who_replays_a_log_gets_the_failed_upstream_logs_it_depends_on() -> None:
    stage = deployed()
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    severs = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    numbers = {task: number for number, task in enumerate(chain().tasks)}
    logs = {task: Segment(numbers[task], 0, 0, 0, 1, encode([Order(0, 1)])) for task in (SOURCE, MIDDLE)}
    stage.answer([(process, sever) for process, sever in severs if process != stage.process(SINK)])
    replays = dict(sent(stage.say(Holdings(stage.process(SINK), severs[0][1].round, list(logs.values()), [])), Replay))
    assert replays[stage.process(MIDDLE)].upstream == [logs[SOURCE]]
    assert replays[stage.process(SOURCE)].upstream == []
