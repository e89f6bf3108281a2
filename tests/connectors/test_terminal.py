"""Lines that are carried to another process: in order, in pieces, and none lost."""

from __future__ import annotations

import threading

import pytest

from clonos_py.connectors.terminal import CarriedLines
from clonos_py.model.errors import SinkError


def test_lines_are_carried_in_order_although_some_are_refused_at_first() -> None:
    carried: list[str] = []
    refusals = iter([True, False])

    def carry(lines: str) -> bool:
        if next(refusals, False):
            return False
        carried.append(lines)
        return True

    terminal = CarriedLines(carry)
    for number in range(100):
        terminal.write(f"{number}\n")
    terminal.flush()
    assert "".join(carried).split() == [str(number) for number in range(100)]


def test_lines_written_during_a_trip_are_carried_as_one_piece() -> None:
    carried: list[str] = []
    under_way, arrived = threading.Event(), threading.Event()

    def carry(lines: str) -> bool:
        carried.append(lines)
        under_way.set()
        return arrived.wait(10)

    terminal = CarriedLines(carry)
    terminal.write("a\n")
    assert under_way.wait(10)
    terminal.write("b\n")
    terminal.write("c\n")
    arrived.set()
    terminal.flush()
    assert carried == ["a\n", "b\nc\n"]


def test_a_sink_whose_lines_cannot_be_carried_fails() -> None:
    def carry(lines: str) -> bool:
        raise ConnectionError("the coordinator is gone")

    terminal = CarriedLines(carry)
    terminal.write("a\n")
    with pytest.raises(SinkError, match="the coordinator is gone"):
        terminal.flush()
