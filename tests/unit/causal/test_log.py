from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clonos_py.causal.codec import LogCodec, decode
from clonos_py.causal.determinants import Answer, Determinant, InputOrder, Linger, SourceRead, Time, TimerFired
from clonos_py.causal.log import CausalStore, LogWriter, merge
from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import LogId, TaskId
from clonos_py.model.segments import ALL_LOGS, LogSegment, StableMark

A, B, C = (TaskId(letter, 0).log_id for letter in "abc")


class WriterStep(Enum):
    """What is done to a writer besides appending a determinant."""

    CUT, ALLOW_REPLAY, OPEN_EPOCH = range(3)


def segment(
    start: int, count: int = 1, *, epoch: int = 0, epoch_start: int = 0, log: LogId = A, payload: bytes = b"x"
) -> LogSegment:
    return LogSegment(log, epoch, epoch_start, start, count, payload)


def test_runs_of_arrivals_from_one_channel_are_one_determinant() -> None:
    writer = LogWriter(A)
    for determinant in (
        InputOrder(1, 1),
        InputOrder(1, 1),
        InputOrder(1, 1),
        InputOrder(2, 1),
        Linger(),
        InputOrder(2, 1),
    ):
        writer.append(determinant)
    cut = writer.cut()
    assert cut is not None
    assert decode(cut.payload) == [InputOrder(1, 3), InputOrder(2, 1), Linger(), InputOrder(2, 1)]
    assert (cut.start, cut.count, writer.offset) == (0, 6, 6)


def test_a_new_epoch_starts_a_new_segment_at_its_own_offset() -> None:
    writer = LogWriter(A)
    writer.append(Time(1))
    rest = writer.open_epoch(4)
    writer.append(Time(2))
    cut = writer.cut()
    assert rest is not None
    assert cut is not None
    assert (rest.epoch, rest.start, rest.count) == (0, 0, 1)
    assert (cut.epoch, cut.epoch_start, cut.start) == (4, 1, 1)
    assert writer.cut() is None


steps = st.lists(st.sampled_from([Time(5), TimerFired(1, 9), SourceRead(0, 7, 9, 1), Answer("rate", 3), *WriterStep]))


@given(steps)
def test_a_log_is_decoded_from_any_segment_that_is_self_contained(steps: list[Determinant | WriterStep]) -> None:
    segments = list(written(steps))
    from_the_start = LogCodec()
    decoded = [from_the_start.load(found) for found in segments]
    for number, first in enumerate(segments):
        if first.self_contained:
            codec = LogCodec()
            assert [codec.load(found) for found in segments[number:]] == decoded[number:]
    begun = [found.self_contained or found.epoch == before.epoch for before, found in pairwise(segments)]
    assert all(begun), "the first segment of an epoch is self-contained"


def written(steps: list[Determinant | WriterStep]) -> Iterator[LogSegment]:
    writer = LogWriter(A)
    for step in steps:
        if not isinstance(step, WriterStep):
            writer.append(step)
            continue
        cut = writer.open_epoch(writer.epoch + 1) if step is WriterStep.OPEN_EPOCH else writer.cut()
        if cut is not None:
            yield cut
        if step is WriterStep.ALLOW_REPLAY:
            writer.allow_replay_from_here()
    if (rest := writer.cut()) is not None:
        yield rest


def test_a_log_without_receivers_is_counted_but_not_kept() -> None:
    writer = LogWriter(A, keeps=False)
    writer.append(InputOrder(1, 3))
    assert (writer.offset, writer.full, writer.cut()) == (3, False, None)


def test_a_new_incarnation_replaces_held_segments_and_earlier_ones_are_ignored() -> None:
    store = CausalStore()
    store.append(segment(0, 3, log=B))
    store.append(segment(0, log=C))
    position = store.position
    store.append(replace(segment(0, payload=b"anew", log=B), incarnation=1))
    assert not store.append(segment(3, log=B))
    assert [s.payload for s in store.of(B)] == [b"anew"]
    assert store.since(position, lambda log: log == B) == store.of(B)
    assert store.size_bytes == len(b"anew") + len(b"x")


def test_merging_takes_the_newest_incarnation() -> None:
    old, new = segment(0, 9), replace(segment(0, payload=b"anew"), incarnation=1)
    assert merge([[old], [new]], 0) == [new]


@given(st.lists(st.integers(1, 3), min_size=1), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), st.data())
def test_merging_takes_the_longest_log_and_compares_all_others(
    counts: list[int], parts: list[tuple[int, int]], data: st.DataObject
) -> None:
    starts = [0, *accumulate(counts)]
    log = [segment(start, count, payload=b"%d" % start) for start, count in zip(starts, counts, strict=False)]
    answers = data.draw(st.permutations([log, *(log[first : first + size] for first, size in parts)]))
    assert merge(answers, 0) == log
    assert merge(answers, 1) == [], "all of it is stable"
    altered = data.draw(st.sampled_from(log))
    answers = data.draw(st.permutations([log, [replace(altered, payload=b"other")]]))
    with pytest.raises(ProtocolError, match=f"differs at offset {altered.start}"):
        merge(answers, 0)


pieces_of_logs = st.lists(
    st.builds(
        lambda log, epoch, start, payload, incarnation: LogSegment(
            log, epoch, 3 * epoch, start, 1, payload, incarnation
        ),
        st.sampled_from([A, B]),
        st.integers(0, 2),
        st.integers(0, 8),
        st.sampled_from([b"x", b"x", b"x", b"other"]),
        st.sampled_from([0, 0, 0, 1]),
    ),
    max_size=5,
)


@settings(max_examples=300)
@given(
    pieces_of_logs, st.integers(0, 2), st.integers(0, 4), st.lists(st.sampled_from([A, A, A, B]), max_size=6), st.data()
)
def test_taking_in_segments_at_once_is_taking_in_one_by_one(
    held: list[LogSegment], stable: int, first: int, logs: list[LogId], data: st.DataObject
) -> None:
    incarnation = data.draw(st.integers(0, 1))
    more = data.draw(pieces_of_logs)
    taken = [
        LogSegment(log, start // 3, start // 3 * 3, start, 1, b"x", incarnation)
        for start, log in enumerate(logs, start=first)
    ]

    def outcome(at_once: bool) -> object:
        store = CausalStore()
        store.mark(StableMark(A, stable))
        with suppress(ProtocolError):
            for piece in held:
                store.append(piece)
        try:
            if at_once:
                store.extend(taken)
                store.extend(more)
            else:
                for piece in (*taken, *more):
                    store.append(piece)
        except ProtocolError as problem:
            return str(problem)
        logs = [(store.of(log), store.end(log), store.reach(log)) for log in (A, B)]
        return logs, store.since(0, lambda _: True), store.position, store.size_bytes, store.incarnations

    assert outcome(at_once=True) == outcome(at_once=False)


def test_a_log_of_which_only_stable_segments_are_held_has_no_end() -> None:
    store = CausalStore()
    assert store.end(A) is None
    store.append(segment(0, 3))
    assert store.end(A) == 3
    store.mark(StableMark(ALL_LOGS, 1))
    assert store.end(A) is None


def test_a_segment_that_comes_over_two_paths_is_held_once() -> None:
    store = CausalStore()
    assert store.append(segment(0, 3))
    assert not store.append(segment(0, 3))
    assert store.of(A) == [segment(0, 3)]


def test_a_gap_is_an_error() -> None:
    store = CausalStore()
    store.append(segment(0, 3))
    with pytest.raises(ProtocolError, match="gap"):
        store.append(segment(4))


def test_a_gap_that_a_completed_checkpoint_covers_is_no_error() -> None:
    store = CausalStore()
    store.append(segment(0, 3))
    store.mark(StableMark(ALL_LOGS, 2))
    assert store.append(segment(9, epoch=2, epoch_start=9))


def test_an_overlap_that_differs_is_an_error() -> None:
    store = CausalStore()
    store.append(segment(0, 3, payload=b"a"))
    with pytest.raises(ProtocolError, match="differs"):
        store.append(segment(0, 3, payload=b"b"))


def test_a_connection_gets_only_what_it_has_not_carried() -> None:
    store = CausalStore()
    store.append(segment(0, log=B))
    position = store.position
    store.append(segment(0, log=C))
    store.append(segment(1, log=B))
    assert store.since(position, lambda log: log == B) == [segment(1, log=B)]


def test_truncation_drops_earlier_epochs_and_nothing_that_a_connection_lacks() -> None:
    store = CausalStore()
    store.append(segment(0, log=B, epoch=1))
    position = store.position
    store.append(segment(0, log=C, epoch=0))
    store.append(segment(1, log=B, epoch=1))
    store.mark(StableMark(ALL_LOGS, 1))
    assert segment(1, log=B, epoch=1) in store.since(position, lambda log: True)
    assert store.of(C) == []
    assert store.of(B) == [segment(0, log=B, epoch=1), segment(1, log=B, epoch=1)]


def test_a_mark_makes_only_the_log_of_its_task_stable() -> None:
    store = CausalStore()
    for log in (B, C):
        store.append(segment(0, log=log))
        store.append(segment(1, log=log, epoch=1, epoch_start=1))
    store.mark(StableMark(B, 1))
    assert [s.epoch for s in store.of(B)] == [1]
    assert [s.epoch for s in store.of(C)] == [0, 1]
    assert (store.stable(B), store.stable(C)) == (1, 0)
    assert store.since(0, lambda log: True) == [*store.of(B), *store.of(C)]


def test_a_connection_carries_the_marks_that_are_new_to_it() -> None:
    store = CausalStore()
    store.mark(StableMark(B, 1))
    store.mark(StableMark(C, 1))
    taken = store.marks_taken
    assert store.marks_since(0) == (StableMark(B, 1), StableMark(C, 1))
    assert store.marks_since(taken) == ()
    store.mark(StableMark(B, 1))
    assert store.marks_since(taken) == (), "the mark is already known"
    store.mark(StableMark(B, 3))
    assert store.marks_since(taken) == (StableMark(B, 3),)


def test_a_mark_of_all_tasks_replaces_the_marks_it_includes() -> None:
    store = CausalStore()
    for mark in (StableMark(B, 1), StableMark(C, 5), StableMark(ALL_LOGS, 3)):
        store.mark(mark)
    assert store.marks_since(0) == (StableMark(C, 5), StableMark(ALL_LOGS, 3))
    assert (store.stable(B), store.stable(C), store.stable(TaskId("other", 0).log_id)) == (3, 5, 3)


def test_merging_holders_gives_the_longest_log() -> None:
    pieces = [segment(0, 2), segment(2, 5), segment(7, 1)]
    assert merge([pieces[:1], pieces, pieces[:2]], 0) == pieces


def test_merging_drops_epochs_before_the_restart_point() -> None:
    old, new = segment(0, 4, epoch=1), segment(4, 1, epoch=2, epoch_start=4)
    assert merge([[old, new], [new]], 2) == [new]


def test_holders_whose_logs_differ_are_an_error() -> None:
    with pytest.raises(ProtocolError):
        merge([[segment(0, 2, payload=b"a")], [segment(0, 2, payload=b"b")]], 0)
