"""The examples as scripts: what a script defines reaches processes that have none of its files.

One process loads each example as ``__main__`` and packs its plan, as a run on Ray does. Another, which does not have
the examples, unpacks each plan and runs it. So no test has to start Ray for each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [
    path for path in sorted((ROOT / "examples").glob("*.py")) if "job = Job(" in path.read_text(encoding="utf-8")
]
CREATED_ONLY = {
    "hot_auctions", "enrichment", "quotes", "cached_rates", "sqlite_source", "from_python", "order_book",
    "enriched_orders",
}  # fmt: skip
"""They need a server, a database, or the memory of the process that has started them."""
NEAR = """
import inspect
import sys
import types
from pathlib import Path
from clonos_py import Job
from clonos_py.plan.physical import plan
from clonos_py.plan.pickling import pack

for file in map(Path, sys.argv[1:]):
    script = sys.modules["__main__"] = types.ModuleType("__main__")
    script.__file__ = str(file)
    Job.start = lambda job, **settings: sys.exit(job)  # where a script starts its job itself
    try:
        exec(compile(file.read_text(), file, "exec"), vars(script))
        job = script.job
        if not isinstance(job, Job):
            places = {"out": file.stem, "database": f"{file.stem}.sqlite"}
            job = job(**{name: places[name] for name in inspect.signature(job).parameters if name in places})
    except SystemExit as started:
        job = started.code
    Path("packed", file.stem).write_bytes(pack(plan(job)))
"""
FAR = """
import json
import sys
from pathlib import Path
from clonos_py.observe.events import no_listener
from clonos_py.runtime.local.run import run
from clonos_py.runtime.ray.shipping import unpack
from clonos_py.settings.resolution import resolve

settings, created_only, ended = resolve(command_line={"runtime": "local"}), set(sys.argv[1:]), {}
for packed in sorted(Path("packed").iterdir()):
    plan = unpack(packed.read_bytes())
    for vertex in plan.vertices:
        for operator in vertex.operators:
            operator.factory()
    if packed.name not in created_only:
        run(plan, settings, no_listener)
    written = [path for path in Path().glob(f"{packed.name}*/**/*") if path.is_file() and path.stat().st_size]
    ended[packed.name] = len(written) + Path(f"{packed.name}.sqlite").is_file()
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The number of files that the job of each example has written."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "packed").mkdir()
    payments = folder / "payments" / "in"
    payments.mkdir(parents=True)
    (payments / "monday.jsonl").write_text('{"id": 1, "account": 7, "cents": 350}\n')
    for arguments in ([NEAR, *map(str, EXAMPLES)], [FAR, *CREATED_ONLY]):
        done = subprocess.run(
            [sys.executable, "-c", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_example_reaches_a_process_that_does_not_have_it(ended: dict[str, int]) -> None:
    assert set(ended) == {path.stem for path in EXAMPLES}


def test_every_job_that_needs_no_server_writes_there(ended: dict[str, int]) -> None:
    printing = {"fraud", "orders_and_payments"}
    assert {name for name, files in ended.items() if files} == set(ended) - CREATED_ONLY - printing
