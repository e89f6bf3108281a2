"""Runs a job as ``clonos run`` does, and writes a line of JSON to a file at the end of each part of its start.

    python -m clonos_py.bench.start_command PARTS JOB.py [SETTING=VALUE ...]

A line has the name of the part, the time of day in seconds, and the processor time of this process so far.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

EndPart = Callable[[str], None]


def main(parts: str, file: str, *settings: str) -> None:
    with open(parts, "a", encoding="utf-8", buffering=1) as out:

        def end_part(part: str) -> None:
            out.write(json.dumps([part, time.time(), time.process_time()]) + "\n")

        end_part("interpreter")
        _run(file, dict(setting.split("=", 1) for setting in settings), end_part)
        end_part("end")
    from clonos_py.runtime.ray.disconnect import exit_now

    exit_now(0)


def _run(file: str, settings: dict[str, str], end_part: EndPart) -> None:
    from clonos_py.runtime.pandas_import import defer_pandas

    defer_pandas()
    from clonos_py.cli import main, run  # noqa: F401 - what the command imports
    from clonos_py.runtime.ray.disconnect import process_ends

    process_ends()
    end_part("command line")
    from clonos_py.dsl.loading import load_job_file
    from clonos_py.settings.resolution import resolve_here

    job = load_job_file(file).job()
    chosen = resolve_here(job.settings, command_line=settings)
    end_part("the job's file")
    from clonos_py.model.coordinator_events import Deployed, Deploying, Finished
    from clonos_py.observe.events import Event, Preparing
    from clonos_py.runtime.launch import run_job

    end_part("imports of the run")
    seen = set()

    def listen(at_us: int, event: Event) -> None:
        part = event.doing if isinstance(event, Preparing) else type(event).__name__
        if isinstance(event, Preparing | Deploying | Deployed | Finished) and part not in seen:
            seen.add(part)
            end_part(part)

    run_job(job, chosen, listen)


if __name__ == "__main__":
    main(*sys.argv[1:])
