"""Answers of services to user code are logged once and replayed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import ServiceError, UserCodeError
from clonos_py.services.context import Context
from clonos_py.services.definition import ServiceDefinition, service
from clonos_py.services.plain import plain
from clonos_py.services.registry import ServiceRegistry
from tests.unit.operators.scripted import ScriptedContext, ScriptedGate

opened: list[str] = []


@service
def owners() -> Iterator[Callable[[int], str]]:
    opened.append("open")
    yield lambda auction: f"owner of {auction}"
    opened.append("closed")


@service
def rude() -> Iterator[Callable[[], object]]:
    def answer() -> object:
        raise KeyError("nobody")

    yield answer


@service
def echo() -> Iterator[Callable[..., object]]:
    yield lambda *args, **kwargs: [*args, kwargs]


@service
def cryptic() -> Iterator[Callable[[], object]]:
    yield object


@service
def unreachable() -> Iterator[Callable[[], int]]:
    raise OSError("no route")
    yield int


def registry(**definitions: ServiceDefinition[..., Any]) -> ServiceRegistry:
    return ServiceRegistry(definitions, lambda: pytest.fail("no HTTP here"))


def context(log: list[tuple[str, Any]] | None = None) -> tuple[Context, ScriptedContext]:
    ctx = ScriptedContext(gate=ScriptedGate(log))
    clients = registry()
    ctx.service = clients.client  # type: ignore[method-assign]
    return Context(ctx), ctx


def test_time_is_read_once_and_replayed() -> None:
    ctx, scripted = context()
    assert ctx.time.now() == 1_000
    again, later = context(scripted.gate.log)
    later.time.wall_us = 9_999
    assert (again.time.now(), again.time.now()) == (1_000, 9_999)


def test_a_service_is_opened_at_its_first_live_call_and_not_in_a_replay() -> None:
    opened.clear()
    ctx, scripted = context()
    assert opened == []
    assert [ctx.call(owners, 3), ctx.call(owners, 4)] == ["owner of 3", "owner of 4"]
    assert opened == ["open"]
    again, _ = context(scripted.gate.log)
    assert [again.call(owners, 3), again.call(owners, 4)] == ["owner of 3", "owner of 4"]
    assert opened == ["open"]


def test_services_take_arguments_of_any_kind() -> None:
    ctx, scripted = context()
    given = ctx.call(echo, {"a": [1]}, None, limit=2.5, raw=b"x")
    assert given == [{"a": [1]}, None, {"limit": 2.5, "raw": b"x"}]
    again, _ = context(scripted.gate.log)
    assert again.call(echo, {"a": [1]}, None, limit=2.5, raw=b"x") == given


def test_clients_are_closed_with_the_task() -> None:
    opened.clear()
    clients = registry()
    clients.client(owners.name)
    clients.close()
    assert opened == ["open", "closed"]


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (rude, "rude raised KeyError: 'nobody'"),
        (cryptic, "cannot be logged"),
        (unreachable, "cannot be opened: OSError: no route"),
    ],
)
def test_an_exception_of_a_service_is_a_service_error_live_and_in_a_replay(
    failing: ServiceDefinition[[], object], message: str
) -> None:
    ctx, scripted = context()
    with pytest.raises(ServiceError, match=message) as live:
        ctx.call(failing)
    again, _ = context(scripted.gate.log)
    with pytest.raises(ServiceError) as replayed:
        again.call(failing)
    assert str(replayed.value) == str(live.value)


def test_an_unknown_service_is_named() -> None:
    with pytest.raises(ServiceError, match="there is no service 'nothing'"):
        registry().client("nothing")


def test_only_declared_services_can_be_called() -> None:
    ctx, _ = context()
    with pytest.raises(UserCodeError, match="declared with @service"):
        ctx.call(print)  # type: ignore[call-overload]


def test_a_definition_given_by_name_replaces_the_declared_one() -> None:
    @service
    def other() -> Iterator[Callable[[int], str]]:
        yield lambda auction: "replaced"

    assert registry(**{owners.name: other}).client(owners.name)(1) == "replaced"


def test_an_unpickled_definition_can_be_called() -> None:
    @service
    def local() -> Iterator[Callable[[], int]]:
        yield lambda: 42

    travelled = pickle.loads(cloudpickle.dumps(local))
    assert registry().client(travelled.name)() == 42


def test_observers_see_which_row_is_processed() -> None:
    _, inner = context()
    keyed = Context(inner, lambda: "k")
    keyed.at_row(3, 77)
    assert keyed.place == (3, "k", 77)
    bare = Context(inner)
    bare.at_row(2)
    assert bare.place == (2, None, None)


def test_ctx_event_time_exists_only_if_the_operator_has_it() -> None:
    ctx, _ = context()
    with pytest.raises(UserCodeError, match=r"no ctx\.event_time"):
        _ = ctx.event_time
    ctx.at_row(0, 77)
    assert ctx.event_time == 77


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.binary()
texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.recursive(scalars | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)))
def test_plain_data_passes_unchanged(value: Any) -> None:
    assert plain(value, "x") == value


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**64, "\ud800", [1, object()], {(1,): 2}, {"a": 1j}])
def test_data_that_a_log_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ServiceError, match="cannot be logged"):
        plain(value, "service x")


def test_tuples_become_lists_live_and_in_a_replay() -> None:
    assert plain((1, {"a": (2,)}), "x") == [1, {"a": [2]}]
