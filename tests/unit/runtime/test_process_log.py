"""Warnings of the engine in a worker: one line each, and none of others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from clonos_py.connectors.terminal import CarriedLines
from clonos_py.runtime.process_log import carry_warnings
from tests.waiting import wait_until

ENGINE = logging.getLogger("clonos_py")


@pytest.fixture
def taken() -> Iterator[list[str]]:
    lines: list[str] = []
    before = list(ENGINE.handlers)
    carry_warnings(lines.append)
    yield lines
    ENGINE.handlers[:] = before


def test_each_warning_is_one_line_and_stays_in_standard_error(
    taken: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("clonos_py.transport").warning("closed the connection\nwith %s", "a peer")
    logging.getLogger("clonos_py.transport").info("not shown")
    logging.getLogger("a_library").warning("not of the engine")
    assert taken == ["closed the connection with a peer\n"]


def test_lines_without_room_are_dropped_and_do_not_block() -> None:
    gate, carried = threading.Event(), list[str]()

    def carry(lines: str) -> bool:
        if gate.is_set():
            carried.append(lines)
        return gate.is_set()

    lines = CarriedLines(carry)
    assert lines.offer("first\n")
    while lines.offer("x" * 100_000):
        pass
    gate.set()
    wait_until(lambda: lines.offer("last\n"))
    lines.flush()
    assert "".join(carried).startswith("first\n")
    assert "".join(carried).endswith("last\n")
