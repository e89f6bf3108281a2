"""Connections of a link: its senders, its receivers, and what happens when a connection ends (D6, D9, D11).

Promises: only connections of the expected attempt are served or read; a subscription that comes too early waits; a lost
connection is reported to the coordinator as a suspicion, and is opened again until the coordinator decides otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.link import instructions as io
from clonos_py.link.receiving import InputChannel
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Peer, Suspect


class Connections:
    """Opens and closes connections; the link handles what flows on them."""

    def __init__(
        self, job: str, process: int, inputs: Sequence[InputChannel], outputs: Sequence[OutputChannel]
    ) -> None:
        self._job, self._process = job, process
        self._inputs, self._outputs = inputs, outputs
        self._attempt: Attempt | None = None
        self._serving = False
        self._parked: list[io.Subscribed] = []
        self._subscriptions: dict[int, io.Hello] = {}
        """By input: the last subscription sent; answers to earlier ones are void."""

    def open(self, attempt: Attempt) -> list[io.Instruction]:
        """The state is loaded: connects the inputs as ``attempt``."""
        self._attempt = attempt
        return [connect for channel in self._inputs for connect in self._connect(channel)]

    def serve(self) -> list[io.Subscribed]:
        """From now on receivers are served. Returns the subscriptions that waited, to be passed to ``admit`` again."""
        self._serving = True
        parked, self._parked = self._parked, []
        return parked

    @property
    def parked(self) -> int:
        """The number of subscriptions that wait for this process to become the attempt they name."""
        return len(self._parked)

    # ---- upstream

    def _connect(self, channel: InputChannel) -> list[io.Instruction]:
        if channel.peer is None or self._attempt is None:
            return []
        channel.opened = False
        next_seq = -1 if channel.renumbers else channel.next_seq
        hello = io.Hello(self._job, channel.channel, self._attempt, channel.peer.attempt, next_seq, channel.covered)
        self._subscriptions[channel.index] = hello
        return [io.Connect(channel.index, channel.peer.address, hello)]

    def _drop(self, channel: InputChannel) -> list[io.Instruction]:
        channel.peer, channel.opened = None, False
        connection, channel.connection = channel.connection, None
        return [] if connection is None else [io.Disconnect(connection)]

    def replace(self, peers: Sequence[Peer]) -> tuple[list[io.Instruction], list[InputChannel]]:
        """Subscribes to ``peers`` in place of the former senders of their channels. Also returns the channels whose
        senders have restarted without their log."""
        instructions: list[io.Instruction] = []
        renumbering = []
        by_channel = {channel.channel: channel for channel in self._inputs}
        for peer in peers:
            channel = by_channel.get(peer.channel)
            if channel is not None and channel.peer != peer:
                instructions += self._drop(channel)
                channel.follow(peer)
                instructions += self._connect(channel)
                renumbering += [channel] if peer.reset else []
        return instructions, renumbering

    def connected(self, event: io.Connected) -> list[io.Instruction]:
        channel = self._inputs[event.input]
        if channel.peer is None or channel.connection is not None or event.hello != self._subscriptions[channel.index]:
            return [io.Disconnect(event.connection)]
        channel.connection = event.connection
        return []

    # ---- downstream

    def admit(self, event: io.Subscribed) -> tuple[OutputChannel | None, list[io.Instruction]]:
        """The output to serve on this connection from now on; an older connection of it is closed. None if the
        subscription must wait until this process is the attempt that it names, and serves receivers. None as well if it
        is refused: it names
        another attempt, or its subscriber has been replaced."""
        hello = event.hello
        output = next((o for o in self._outputs if o.channel == hello.channel), None)
        if output is None or hello.job != self._job:
            return None, [io.Disconnect(event.connection)]
        if self._attempt is None or not self._serving or hello.sender > self._attempt:
            return None, self._park(event)
        if hello.sender != self._attempt or hello.receiver < output.attempt:
            return None, [io.Disconnect(event.connection)]
        return output, self._stop_serving(output)

    def _park(self, event: io.Subscribed) -> list[io.Instruction]:
        """Lets a subscription wait, in place of an earlier one of its channel: that is void."""
        hello = event.hello
        void = [s for s in self._parked if s.hello.channel == hello.channel and s.hello.receiver <= hello.receiver]
        self._parked = [*(s for s in self._parked if s not in void), event]
        return [io.Disconnect(earlier.connection) for earlier in void]

    def _stop_serving(self, output: OutputChannel) -> list[io.Instruction]:
        connection = output.disconnect()
        return [] if connection is None else [io.Disconnect(connection)]

    # ---- ends

    def lost(self, event: io.Lost) -> list[io.Instruction]:
        instructions: list[io.Instruction] = []
        for channel in self._inputs:
            if channel.peer is not None and self._concerns(event, channel):
                channel.connection, channel.opened = None, False
                channel.failures += 1
                instructions.append(io.SendToCoordinator(Suspect(self._process, channel.sender, channel.failures)))
                instructions += self._connect(channel)
        for output in self._outputs:
            if event.connection >= 0 and output.connection == event.connection:
                output.disconnect()
        self._parked = [s for s in self._parked if s.connection != event.connection]
        return instructions

    def close_older(self, attempts: Mapping[TaskId, Attempt]) -> list[io.Instruction]:
        """Closes connections of older attempts. Nothing from these may arrive any more, and later subscriptions of
        theirs are refused."""
        closed: list[io.Instruction] = []
        for channel in self._inputs:
            if channel.peer is not None and channel.peer.attempt < attempts.get(channel.sender, channel.peer.attempt):
                closed += self._drop(channel)
        for output in self._outputs:
            newer = attempts.get(output.receiver, output.attempt)
            if output.attempt < newer:
                closed += self._stop_serving(output)
                output.attempt = newer
        return closed

    def _concerns(self, event: io.Lost, channel: InputChannel) -> bool:
        if event.connection >= 0:
            return event.connection == channel.connection
        tried = event.hello is not None and event.hello == self._subscriptions.get(channel.index)
        return tried and event.input == channel.index and channel.connection is None
