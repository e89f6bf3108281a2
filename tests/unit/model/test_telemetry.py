"""Events and counters are typed to the last field, on the wire too."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.counters import EventTimesRead, ProcessCounters, SavedParts
from clonos_py.model.errors import CodecError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Pong, decode_to_coordinator, encode
from clonos_py.model.state import StateSize
from clonos_py.model.user_metrics import MetricKind, UserMetric

PLAIN = {int, float, str, bool, TaskId, Attempt, NoneType}
WITH_KEYS_OF_DATA = {"requests"}
"""The keys are the operations of an object store."""
COUNTERS = ProcessCounters(
    active=True,
    rows_in=7,
    lag_us=-3,
    held_back=True,
    cpu_us=2**40,
    counts={"window.late_rows": 5},
    latency={129: 2},
    event_times=[EventTimesRead("bids", "at", -5, 2**62)],
    state={"sums": StateSize(3, 2**40)},
    metrics={"shop.euros": UserMetric(MetricKind.HISTOGRAM, 2.5, (1.0,), (0, 1))},
    attempt=Attempt(1, 2),
)


def types(hint: Any) -> set[Any]:
    return set(get_args(hint)) if isinstance(hint, UnionType) else {hint}


@pytest.mark.parametrize("kind", get_args(CoordinatorEvent))
def test_an_event_is_frozen_and_its_fields_are_plain_values(kind: type[CoordinatorEvent]) -> None:
    assert issubclass(kind, msgspec.Struct)
    assert kind.__struct_config__.frozen
    for name, hint in get_type_hints(kind).items():
        assert types(hint) <= PLAIN or (name in WITH_KEYS_OF_DATA and hint == dict[str, int]), name


def test_counters_have_no_mappings_except_those_whose_keys_are_data() -> None:
    assert ProcessCounters.__struct_config__.frozen
    hints = get_type_hints(ProcessCounters)
    composed = {"counts", "latency", "worst_latency", "event_times", "saved_parts", "state", "metrics"}
    assert {name for name, hint in hints.items() if not types(hint) <= PLAIN} == composed
    assert (hints["counts"], hints["latency"]) == (dict[str, int], dict[int, int])
    assert hints["event_times"] == list[EventTimesRead]
    assert hints["metrics"] == dict[str, UserMetric]
    for part in (EventTimesRead, SavedParts, StateSize):
        assert set(get_type_hints(part).values()) <= PLAIN


@pytest.mark.parametrize("counters", [ProcessCounters(), COUNTERS])
def test_counters_survive_the_wire(counters: ProcessCounters) -> None:
    pong = Pong(3, 9, counters)
    assert decode_to_coordinator(encode(pong)) == pong


@pytest.mark.parametrize(
    "counters",
    [
        {"rows_in": "seven"},
        {"active": 1},
        {"rows_in": 1.5},
        {"cpu_us": None},
        {"counts": {"late_rows": "many"}},
        {"counts": {7: 7}},
        {"latency": {"p99": 3}},
        {"event_times": [{"source": "bids", "column": "at", "earliest_us": "soon", "latest_us": 7}]},
        ["not", "a", "struct"],
        None,
    ],
)
def test_counters_of_other_types_are_refused(counters: object) -> None:
    pong = {"type": "Pong", "process": 3, "number": 9, "counters": counters}
    with pytest.raises(CodecError):
        decode_to_coordinator(msgspec.msgpack.encode(pong))


def test_an_answer_that_is_cut_off_is_refused() -> None:
    sent = encode(Pong(3, 9, COUNTERS))
    for length in range(len(sent)):
        with pytest.raises(CodecError):
            decode_to_coordinator(sent[:length])


def test_an_answer_with_a_wrong_bit_raises_only_codec_errors() -> None:
    sent, refused = encode(Pong(3, 9, COUNTERS)), 0
    for bit in range(8 * len(sent)):
        wrong = bytearray(sent)
        wrong[bit // 8] ^= 1 << bit % 8
        try:
            decode_to_coordinator(bytes(wrong))
        except CodecError:
            refused += 1
    assert refused > len(sent)
