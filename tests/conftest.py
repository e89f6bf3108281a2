"""How tests are distributed over processes, how failures are reported, and when the garbage collector runs."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

os.environ.setdefault("CLONOS_LOG_LEVEL", "warning")
# Tests compare what a run prints. How many checkpoints it takes depends on the machine.

settings.register_profile("busy", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("busy")
# Times on a crowded machine do not describe the code.
settings.register_profile("quick", settings.get_profile("busy"), max_examples=25)

_TOGETHER = (
    "tests/spark/",
    "tests/kafka/",
    "tests/postgres/",
    "tests/storage/",
    "tests/object_store/",
    "tests/examples/test_scripts.py",
    "tests/examples/test_site.py",
    "tests/jobs/test_check.py",
    "tests/jobs/test_changed_definitions.py",
    "tests/jobs/test_changed_state.py",
)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Each test by itself, but those with Spark in one process, and those with Kafka, PostgreSQL or an object store:
    they share a session, a broker or a server that takes seconds to start; so are the site, the examples as scripts,
    the job of suspects, and the jobs whose files are damaged, which are made once. They start first, since the former
    take minutes."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), nodeid)


class Failures:
    """Names each failure when it happens: a run that is stopped from outside has no summary."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message.partition("\n")[0] if crash else report.longreprtext
            self._reporter.write_line(f"\n{report.nodeid} ({report.when}, {report.duration:.0f} s): {reason}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's job in the background: commands would, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):
        config.pluginmanager.register(Failures(reporter))
    if "not thorough" in config.option.markexpr:
        settings.load_profile("quick")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """More than there are processors: some tests wait for servers and processes. Each collects all tests."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker imports a share of the modules before it collects all of them: in a new clone, all workers would
    compile each module at the same time."""
    config = session.config
    if (worker := getattr(config, "workerinput", None)) is None:
        return
    folder, root = config.invocation_params.dir, config.rootpath
    given = [folder / argument.partition("::")[0] for argument in config.args]
    ignored = [folder / path for path in config.getoption("ignore") or ()]
    chosen = [
        path
        for path in sorted(root.glob("tests/**/test_*.py"))
        if any(map(path.is_relative_to, given)) and not any(map(path.is_relative_to, ignored))
    ]
    for path in chosen[int(worker["workerid"].removeprefix("gw")) :: int(worker["workercount"])]:
        with suppress(Exception, pytest.skip.Exception):  # what cannot be imported fails when it is collected
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Imported and collected objects stay to the end, and a simulated run creates many that do not: to scan all of them
    after every few hundred objects takes a seventh of the simulator's time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
