"""Tests of jobs and of connectors without a server.

``run`` runs a job in the simulator, with sources and sinks replaced by name and with injected failures.
``http_answer`` makes an answer that a test gives to a request.
``check_source`` and ``check_sink`` check a user's own connector against its contract.
"""

from __future__ import annotations

from clonos_py.model.record import at
from clonos_py.testing.given_answers import http_answer
from clonos_py.testing.jobs import run
from clonos_py.testing.sinks import check_sink
from clonos_py.testing.sources import check_source

__all__ = ["at", "check_sink", "check_source", "http_answer", "run"]
