"""Which survivors are orphans, compared with the definitions on every small graph, and explained for the cases that
matter."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from clonos_py.job.orphans import explanation, orphans
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import HeldLogsReport
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.settings.kinds import FULL_DEPTH
from tests.unit.job.graphs import every_graph, graph, logs, orphans_by_definition, task


def survivor(plan: PhysicalPlan, which: TaskId, *senders: str, **known: object) -> HeldLogsReport:
    """A process that was never replaced and has received frames from these tasks, all if none is named."""
    heard = [i for i, c in enumerate(plan.inputs[which]) if not senders or plan.sender(c).vertex in senders]
    return HeldLogsReport(0, 1, [], [], depends=heard, **known)  # type: ignore[arg-type]


def lost(plan: PhysicalPlan, failed: str, **answers: HeldLogsReport) -> str:
    """The failed tasks whose determinants are lost; by default, each survivor has received from all others."""
    dead = {task(letter) for letter in failed}
    survivors = {t: survivor(plan, t) for t in plan.tasks if t not in dead}
    survivors |= {task(letter): answer for letter, answer in answers.items()}
    found = orphans(plan, dead, survivors)
    assert set(found) == orphans_by_definition(plan, dead, survivors)
    return "".join(sorted(origin.vertex for origin in found))


@pytest.mark.parametrize("depth", [1, 2, 3, -1])
def test_orphans_of_every_failure_in_every_graph_of_four_tasks_match_the_definitions(depth: int) -> None:
    random_ = random.Random(depth)
    judged = 0
    for edges in every_graph("abcd"):
        plan = graph(*edges, sharing_depth=depth)
        for size in range(1, 5):
            for failed in itertools.combinations(plan.tasks, size):
                survivors = {t: _drawn(plan, t, random_) for t in plan.tasks if t not in failed}
                found = orphans(plan, failed, survivors)
                expected = orphans_by_definition(plan, failed, survivors)
                assert set(found) == expected, (edges, depth, failed, survivors)
                judged += bool(expected)
    assert judged > 50 or depth == -1, "too few cases had orphans: the test proves little"


def _drawn(plan: PhysicalPlan, which: TaskId, random_: random.Random) -> HeldLogsReport:
    """Half of the survivors were never replaced; the others have partly caught up."""
    inputs = range(len(plan.inputs[which]))
    depends = [i for i in inputs if random_.random() < 0.7]
    heard = {i: [log for log in plan.logs if random_.random() < 0.2] for i in inputs}
    whole = [log for log in plan.logs if random_.random() < 0.2]
    if random_.random() < 0.5:
        return HeldLogsReport(0, 1, [], [], depends=depends, logs_received=heard, whole=whole)
    incomplete = {i: [log for log in plan.logs if random_.random() < 0.5] for i in inputs}
    has_own_log = random_.random() < 0.7
    replayed = [i for i in inputs if has_own_log and random_.random() < 0.5]
    return HeldLogsReport(
        0,
        1,
        [],
        [],
        depends=depends,
        logs_received=heard,
        replayed=replayed,
        incomplete=incomplete,
        has_own_log=has_own_log,
        whole=whole,
    )


def test_one_failure_at_depth_1_never_makes_an_orphan() -> None:
    for edges in every_graph("abcd"):
        plan = graph(*edges, sharing_depth=1)
        for failed in plan.tasks:
            assert lost(plan, failed.vertex) == ""


def test_as_many_consecutive_failures_as_the_depth_make_no_orphan_and_one_more_does() -> None:
    for depth in (1, 2, 3):
        plan = graph("ab", "bc", "cd", "de", sharing_depth=depth)
        assert lost(plan, "abcd"[:depth]) == ""
        assert lost(plan, "abcd"[: depth + 1]) == "a"


def test_a_short_path_does_not_cover_a_longer_one_to_the_same_receiver() -> None:
    """d is one hop from a, but logs that came through b and c may be newer than those that a has sent it itself."""
    plan = graph("ab", "bc", "cd", "ad", sharing_depth=1)
    assert lost(plan, "abc") == "ab"
    assert lost(plan, "ac") == "", "b holds the log that a sent over that path"
    within = graph("ab", "bd", "ad", sharing_depth=1)
    assert lost(within, "ab") == "", "b passes the log of a on to d: d is within the depth"


def test_a_survivor_that_has_received_nothing_depends_on_nothing() -> None:
    plan = graph("ab", "bc", sharing_depth=1)
    assert lost(plan, "ab", c=HeldLogsReport(0, 1, [], [])) == ""


def test_a_holder_of_a_log_depends_on_the_lost_log_before_it_although_no_frame_came() -> None:
    plan = graph("ab", "bc", "cd", sharing_depth=2)
    assert lost(plan, "abc", d=HeldLogsReport(0, 1, [], [])) == ""
    assert lost(plan, "abc", d=HeldLogsReport(0, 1, [], [], logs_received={0: logs("b")})) == "a", (
        "the log of b will be replayed"
    )


def test_a_holder_of_a_log_with_all_that_this_depends_on_is_no_orphan() -> None:
    """The log of b came to d from a process that did not vouch for that of a, and d holds enough of that nevertheless:
    with full depth both come together."""
    plan = graph("ab", "bc", "cd")
    held = HeldLogsReport(0, 1, [], [], logs_received={0: logs("b")}, incomplete={0: logs("ac")}, has_own_log=False)
    assert lost(plan, "abc", d=held) == "a"
    assert lost(plan, "abc", d=msgspec.structs.replace(held, whole=logs("a"))) == ""


def test_a_holder_of_a_log_depends_only_on_logs_that_came_down_the_same_path() -> None:
    """The log that a sent to b is covered at d. Only the path through c is not, and the log of b did not come to e on
    it."""
    plan = graph("ab", "bd", "ac", "cd", "de")
    e = HeldLogsReport(0, 1, [], [], logs_received={0: logs("b")}, incomplete={0: logs("acd")}, has_own_log=False)
    covers_b = HeldLogsReport(
        0, 1, [], [], depends=[0], logs_received={0: logs("ab")}, incomplete={1: logs("ac")}, has_own_log=False
    )
    assert lost(plan, "abcde", d=covers_b, e=e) == ""
    covers_neither = HeldLogsReport(0, 1, [], [], incomplete={0: logs("ab"), 1: logs("ac")}, has_own_log=False)
    assert lost(plan, "abcde", d=covers_neither, e=e) == "a", "the log of b will be replayed"


def test_a_standby_that_was_just_promoted_neither_holds_nor_depends_on_a_log() -> None:
    plan = graph("ab", "bc", "cd", sharing_depth=2)
    dead = {task(letter) for letter in "abc"}
    assert set(orphans(plan, dead, {task("d"): survivor(plan, task("d"))})) == {task("a")}
    assert orphans(plan, {*dead, task("d")}, {}) == {}


def test_a_replacement_that_has_not_opened_its_inputs_holds_no_log() -> None:
    plan = graph("ab", "bc", sharing_depth=1)
    behind = HeldLogsReport(0, 1, [], [], incomplete={0: logs("a")}, replayed=[0], needs={task("a").log_id: 1})
    assert lost(plan, "a", b=behind) == "a"
    assert lost(plan, "a", b=HeldLogsReport(0, 1, [], [], depends=[0])) == ""
    holder = HeldLogsReport(0, 1, [LogSegment(task("a").log_id, 0, 0, 0, 1, b"")], [], depends=[0])
    assert lost(graph("ab", "bc", sharing_depth=2), "a", b=behind, c=holder) == "", "c holds it, too"


def test_a_replacement_whose_log_names_no_row_of_an_input_has_passed_nothing_on() -> None:
    plan = graph("ab", "bc", sharing_depth=1)
    assert lost(plan, "a", b=HeldLogsReport(0, 1, [], [], incomplete={0: logs("a")})) == ""


def test_a_replacement_depends_on_the_logs_that_the_senders_of_its_own_log_held() -> None:
    """c gave b its log, and died before b had received from a; d, which holds less of a's log, is no substitute."""
    plan = graph("ab", "bc", "cd", "bd")
    given = HeldLogsReport(0, 1, [], [], incomplete={0: logs("a")}, replayed=[0], needs={task("a").log_id: 9})
    known = [LogSegment(task("a").log_id, 0, 0, 0, 7, b"")]
    answers = {task("b"): given, task("d"): HeldLogsReport(0, 1, known, [], depends=[0, 1])}
    assert orphans(plan, {task("a"), task("c")}, answers) == {task("a"): task("b")}
    answers[task("d")] = HeldLogsReport(
        0, 1, [*known, LogSegment(task("a").log_id, 0, 0, 7, 2, b"")], [], depends=[0, 1]
    )
    assert orphans(plan, {task("a"), task("c")}, answers) == {}


@pytest.mark.parametrize(
    ("depth", "covers"),
    [(1, ": sharing depth 1 covers 1 consecutive failures"), (FULL_DEPTH, ", though the sharing depth is full")],
)
def test_the_reason_of_a_rollback_names_the_orphan_and_the_tasks_it_depends_on(depth: int, covers: str) -> None:
    plan, dead = graph("ab", "bc", sharing_depth=depth), {task("a"), task("b")}
    found = {task("a"): task("c")}
    assert explanation(plan, found, dead) == (
        f"c[0] depends on a[0], whose determinants were lost with a[0], b[0]{covers}"
    )


def looped(failed: str, **answers: HeldLogsReport) -> str:
    """Of a -> b -> c -> d, where rows go back from c to b: the failed tasks whose determinants are lost."""
    plan = graph("ab", "bc", "cd", "cb")
    dead = {task(letter) for letter in failed}
    survivors = {t: survivor(plan, t) for t in plan.tasks if t not in dead}
    survivors |= {task(letter): answer for letter, answer in answers.items()}
    return "".join(sorted(origin.vertex for origin in orphans(plan, dead, survivors)))


def test_any_surviving_task_of_a_loop_holds_the_logs_of_all_its_tasks() -> None:
    assert looped("b") == looped("c") == looped("bc") == looped("abc") == ""


def test_a_loop_without_survivors_has_no_orphans() -> None:
    assert looped("bcd") == ""


def test_a_task_after_a_loop_that_lacks_its_logs_is_an_orphan() -> None:
    plan = graph("ab", "bc", "cd", "cb")
    incomplete = {0: logs("bc")}
    assert looped("bc", d=survivor(plan, task("d"), incomplete=incomplete)) == "bc"


def test_a_loop_of_one_task_makes_it_no_orphan_of_itself() -> None:
    plan = graph("ab", "bb")
    claimed = survivor(plan, task("b"), logs_received={1: logs("ab")})
    assert orphans(plan, {task("a"), task("b")}, {task("b"): claimed}) == {}
