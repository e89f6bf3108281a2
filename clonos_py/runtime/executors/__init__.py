"""The executors: the one place in which the instructions of each state machine are matched and carried out.

The machines of ``task/``, ``link/`` and ``job/`` have no I/O: they take an event and return instructions. An executor
owns one machine, passes events to it and turns each instruction into a call of its environment. It has no thread, no
socket and no clock. Ray, the local run and the simulator run the same executors, each with its own environments.
"""
