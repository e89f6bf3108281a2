"""Receives the changes of a table ahead, in a thread, and reports to the server what checkpoints cover.

The thread connects again after a failure. A slot can be followed by one process only. A reader takes it over from other
attempts of its task, which are known by the run's token, and never from another program. An attempt that has lost the
slot so does not take it back.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg

from clonos_py.connectors.postgres.log_place import LogPlace
from clonos_py.connectors.postgres.replication import Piece, Replication
from clonos_py.connectors.postgres.server import PostgresAddress, passes, told
from clonos_py.connectors.postgres.slot import as_text, drop_statement, lost, of_text
from clonos_py.model.errors import SourceError, type_and_text

_RETRY_S = 0.2
_WAIT_S = 0.5
_ASK_S = 0.02
"""How often the server is asked how far it has come, if the stream has an end: without changes it does not say so."""
_CLOSE_S = 5.0
_IN_USE_S = 75.0
"""A server notices after wal_sender_timeout (60 s) that the process which followed a slot has gone without a word."""
_BUFFERED_MESSAGES = 50_000
_BUFFERED_BYTES = 64 << 20


@dataclass(frozen=True)
class StreamTarget:
    """What a stream follows. ``token``: drawn for each run; ``stop``: the end in the log, if there is one."""

    address: PostgresAddress
    where: str
    table: int
    slot: str
    publication: str
    token: str
    stop: int | None
    away_s: float

    @property
    def name(self) -> str:
        return f"clonos {self.token}"


class ChangeStream:
    """The thread and its buffer. It calls ``wake`` when there is something to take, or an error to raise."""

    def __init__(self, target: StreamTarget, place: LogPlace, wake: Callable[[], None]) -> None:
        self._target, self._place, self._wake = target, place, wake
        self._changed = threading.Condition()
        self._pieces: deque[Piece] = deque()
        self._messages = self._size_bytes = 0
        self._reached = place.lsn
        self._ended = False
        self._failure: SourceError | None = None
        self._confirmed = 0
        self._closed = False
        self._own_process = 0
        self._has_followed = False
        self.log_end = place.lsn
        self.bytes_of_row = 0.0
        """The bytes of the log for each change of the table, as far as they were received."""
        self._received_messages = 0
        self._first_lsn = place.lsn
        self._over = False
        """Whether the thread has ended, and has closed the pipe that interrupts its waits."""
        self._interrupted, self._interrupting = os.pipe()
        self._thread = threading.Thread(target=self._run, name="postgres changes", daemon=True)
        self._thread.start()

    # ---- called by the task

    def take(self, most: int, below: int | None = None) -> Sequence[Piece]:
        """The next pieces, of the same relation, of ``most`` changes or a few more. Raises SourceError, once what came
        before the failure is taken."""
        with self._changed:
            found: list[Piece] = []
            while self._pieces and most > 0 and (not found or self._pieces[0].relation == found[0].relation):
                found.append(self._pop())
                most -= len(found[-1].messages)
            if not found and self._failure is not None:
                raise self._failure
            self._changed.notify_all()
            return found

    def take_before(self, place: LogPlace, stop: LogPlace) -> tuple[Sequence[Piece], bool]:
        """The next pieces from ``place`` on that lie before ``stop``, and whether these are all. Raises SourceError."""
        found: list[Piece] = []
        with self._changed:
            while self._pieces and _is_before(self._pieces[0], place, stop):
                found.append(self._pop())
                place = place.after(found[-1].end)
            complete = bool(self._pieces) or place >= stop or self._reached >= stop.lsn > place.lsn or self._ended
            if not complete and not found and self._failure is not None:
                raise self._failure
            self._changed.notify_all()
        return found, complete

    def _pop(self) -> Piece:
        piece = self._pieces.popleft()
        self._messages -= len(piece.messages)
        self._size_bytes -= piece.size_bytes
        return piece

    @property
    def idle_at(self) -> int | None:
        """The place in the log up to which all is taken; None while there is something to take."""
        with self._changed:
            return None if self._pieces or self._failure is not None else self._reached

    @property
    def has_ended(self) -> bool:
        """Whether all is taken, and nothing will follow."""
        with self._changed:
            return self._ended and not self._pieces

    @property
    def waiting(self) -> int:
        """The number of changes to take."""
        return self._messages

    @property
    def bytes_kept(self) -> int:
        """The bytes of the server's log behind what was confirmed, as far as the server has said where it ends."""
        return max(0, self.log_end - max(self._confirmed, self._first_lsn))

    def wait_for_change(self, seconds: float = _WAIT_S) -> None:
        with self._changed:
            if not self._pieces and not self._ended and self._failure is None:
                self._changed.wait(seconds)

    def confirm(self, lsn: int) -> bool:
        """Changes before this place need not be kept any more. Any thread may call it. False if the thread is over."""
        with self._changed:
            self._confirmed = max(self._confirmed, lsn)
            self._changed.notify_all()
            self._interrupt_the_wait()
            return not self._over

    def close(self) -> None:
        """Ends the thread, which reports first what was confirmed. It may take longer if the server does not answer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._interrupt_the_wait()
        self._thread.join(_CLOSE_S)

    def _interrupt_the_wait(self) -> None:
        if not self._over:
            os.write(self._interrupting, b"x")

    # ---- the thread

    def _run(self) -> None:
        try:
            self._follow_on()
        finally:
            with self._changed:
                self._over = True
                os.close(self._interrupted)
                os.close(self._interrupting)

    def _follow_on(self) -> None:
        since: float | None = None
        while not self._closed and self._failure is None:
            try:
                self._follow()
            except psycopg.Error as problem:
                now = time.monotonic()
                since = now if since is None or self._has_news() else since
                if not passes(problem) and not isinstance(problem, psycopg.errors.ObjectInUse):
                    self._fail(self._explained(problem))
                elif now - since > self._patience_s(problem):
                    self._fail(f"{self._explained(problem)}; it was tried again for {self._target.away_s:g} s (away=)")
                else:
                    time.sleep(_RETRY_S)
            except SourceError as problem:
                self._fail(str(problem))
            except Exception as problem:  # noqa: BLE001 - the waiting task must get an error
                self._fail(type_and_text(problem))

    def _has_news(self) -> bool:
        """Whether the slot was followed since the last call: then the failure is a new one."""
        followed, self._has_followed = self._has_followed, False
        return followed

    def _patience_s(self, problem: psycopg.Error) -> float:
        in_use = isinstance(problem, psycopg.errors.ObjectInUse)
        return min(self._target.away_s, _IN_USE_S) if in_use else self._target.away_s

    def _fail(self, text: str) -> None:
        with self._changed:
            self._failure = SourceError(f"{self._target.where}: {text}")
            self._changed.notify_all()
        self._wake()

    def _explained(self, problem: psycopg.Error) -> str:
        match problem.sqlstate:
            case "42704":
                return f"{told(problem)}: changes since the last checkpoint are lost; start over with --fresh"
            case "55000":
                return f"{told(problem)}: {lost(self._target.slot)}"
            case "55006":
                return (
                    f"{told(problem)}: another program follows the slot: end that, or give each job a slot of its own"
                )
        return told(problem)

    def _follow(self) -> None:
        """Follows the slot until the stream is closed or the connection is lost. At the end of the stream it still
        reports what is confirmed."""
        target = self._target
        self._make_way()
        connection = Replication(target.address, target.name, target.table, self._place, target.stop)
        try:
            self._own_process = connection.process
            connection.start(target.slot, target.publication, self._place)
            reported = 0
            while not self._closed:
                reads = self._has_room and not self._ended
                taken = list(connection.pieces()) if reads else []
                if taken or connection.reached != self._reached or connection.ended:
                    self._add(taken, connection)
                if self._confirmed > reported or connection.report_is_due:
                    reported = self._confirmed
                    connection.report(reported)
                if reads and not taken:
                    asks = target.stop is not None
                    if asks:
                        connection.report(reported, ask=True)
                    if connection.wait(_ASK_S if asks else _WAIT_S, self._interrupted):
                        os.read(self._interrupted, 4_096)
                elif not reads:
                    self._wait_for_work(reported)
            connection.report(self._confirmed)
        finally:
            connection.close()

    @property
    def _has_room(self) -> bool:
        return self._messages < _BUFFERED_MESSAGES and self._size_bytes < _BUFFERED_BYTES

    def _wait_for_work(self, reported: int) -> None:
        with self._changed:
            if not self._closed and self._confirmed <= reported and (self._ended or not self._has_room):
                self._changed.wait(_WAIT_S)

    def _add(self, pieces: Sequence[Piece], connection: Replication) -> None:
        with self._changed:
            for piece in pieces:
                self._place = self._place.after(piece.end)
                self._pieces.append(piece)
                self._messages += len(piece.messages)
                self._received_messages += len(piece.messages)
                self._size_bytes += piece.size_bytes
            self._reached, self.log_end = connection.reached, connection.log_end
            if not self._place.pieces:
                self._place = LogPlace(max(self._place.lsn, self._reached))
            self._ended = self._ended or connection.ended
            self._has_followed = True
            if self._received_messages:
                self.bytes_of_row = (self._reached - self._first_lsn) / self._received_messages
            self._changed.notify_all()
        self._wake()

    # ---- the slot

    def _make_way(self) -> None:
        """Checks that the slot has everything behind the place, and ends those that follow it in this run's name."""
        target = self._target
        with target.address.connect(f"{target.name} check") as connection:
            found = connection.execute(
                "SELECT s.confirmed_flush_lsn::text, s.wal_status, s.active_pid, a.application_name "
                "FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid "
                "WHERE s.slot_name = %s AND s.database = current_database()",
                [target.slot],
            ).fetchone()
            if found is None:
                raise psycopg.errors.UndefinedObject(f"replication slot {target.slot!r} does not exist")
            confirmed, status, process, holder = found
            if status == "lost":
                raise SourceError(lost(target.slot))
            if of_text(confirmed) >> 3 > self._place.lsn >> 3:
                raise SourceError(
                    f"changes up to {confirmed} were confirmed by a later checkpoint than that of this run, which ends "
                    f"at {as_text(self._place.lsn)}: resume from the later one or, to begin anew, "
                    f"{drop_statement(target.slot)}, and start over with --fresh"
                )
            first = not self._own_process
            if process is not None and (process == self._own_process or (first and holder == target.name)):
                connection.execute("SELECT pg_terminate_backend(%s)", [process])
                self._await_release(connection)

    def _await_release(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        until = time.monotonic() + _RETRY_S * 25
        while time.monotonic() < until:
            found = connection.execute(
                "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [self._target.slot]
            ).fetchone()
            if found is None or found[0] is None:
                return
            time.sleep(_RETRY_S / 100)


def _is_before(piece: Piece, place: LogPlace, stop: LogPlace) -> bool:
    """Whether a piece that begins at ``place`` lies before ``stop``: in a transaction that ends before it, or in the
    one in which it lies."""
    return piece.committed < stop.lsn or (place.lsn == stop.lsn and place.pieces < stop.pieces)
