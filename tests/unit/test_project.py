"""The rules of the project: imports point one way, side effects live at the edge, the wheel is complete. Every rule is
broken once on purpose in a copy, to see that its tool finds it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import hatch_build
from tests.archives import unpack

ROOT = Path(__file__).resolve().parents[2]
TOP_FOLDERS = ("operators", "services", "bench")
SHIPPED = ("operators", "services")
"""Of these folders the ones that are part of the product."""
BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the package with its links, reduced to what the tools need: packages without code."""
    for folder in ("clonos_py", *TOP_FOLDERS):
        for file in (ROOT / folder).rglob("__init__.py"):
            copy = tmp_path / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.touch()
    for folder in TOP_FOLDERS:
        (tmp_path / "clonos_py" / folder).symlink_to(Path("..") / folder, target_is_directory=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    return run(sys.executable, "-c", f"import sys; sys.path.insert(0, '.'); {code}", cwd=project)


@pytest.mark.parametrize("folder", TOP_FOLDERS)
def test_folders_at_the_top_cannot_be_imported_under_their_bare_name(folder: str) -> None:
    with pytest.raises(ImportError, match=f"clonos_py.{folder}"):
        importlib.import_module(folder)
    assert importlib.import_module(f"clonos_py.{folder}").__name__ == f"clonos_py.{folder}"


AGAINST_THE_DIRECTION = [
    ("clonos_py/model/bad.py", "clonos_py.columns", "Imports point one way"),
    ("clonos_py/causal/bad.py", "clonos_py.task", "Imports point one way"),
    ("clonos_py/job/bad.py", "clonos_py.runtime", "Imports point one way"),
    ("clonos_py/runtime/ray/bad.py", "clonos_py.cli", "Imports point one way"),
    ("clonos_py/plan/bad.py", "clonos_py.dsl", "Imports point one way"),
    ("clonos_py/expressions/bad.py", "clonos_py.plan", "Imports point one way"),
    ("clonos_py/settings/bad.py", "clonos_py.plan", "Imports point one way"),
    ("clonos_py/evaluation/nexmark/bad.py", "clonos_py.cli", "Imports point one way"),
    ("clonos_py/evaluation/spark/bad.py", "clonos_py.cli", "Imports point one way"),
    ("clonos_py/evaluation/nexmark/bad.py", "clonos_py.evaluation.spark", "Imports of the evaluation point one way"),
    ("clonos_py/cli/bad.py", "clonos_py.bench", "Imports point one way"),
    ("clonos_py/evaluation/nexmark/bad.py", "clonos_py.bench", "Imports point one way"),
    ("operators/bad.py", "clonos_py.runtime", "Operators and services know"),
    ("services/bad.py", "clonos_py.connectors", "Operators and services know"),
    ("clonos_py/task/bad.py", "clonos_py.link", "Imports point one way"),
    ("clonos_py/link/bad.py", "clonos_py.task", "Imports point one way"),
    ("clonos_py/process/bad.py", "clonos_py.link", "Imports point one way"),
    ("clonos_py/task/bad.py", "clonos_py.operators", "The protocol core knows"),
    ("clonos_py/link/bad.py", "clonos_py.operators", "The protocol core knows"),
    ("clonos_py/dsl/bad.py", "clonos_py.runtime", "Defining and planning a job"),
    ("clonos_py/connectors/bad.py", "clonos_py.job", "Connectors know"),
    ("clonos_py/runtime/bad.py", "clonos_py.evaluation.nexmark", "The engine knows neither"),
    ("clonos_py/testing/bad.py", "pyspark", "The engine knows neither"),
    ("clonos_py/evaluation/checkmate/bad.py", "clonos_py.evaluation.spark", "Spark is known to its own room"),
    ("bench/bad.py", "pyspark", "Spark is known to its own room"),
    ("clonos_py/runtime/bad.py", "obstore", "The client of object stores is known to its own room only"),
    ("clonos_py/checkpoint/bad.py", "obstore", "The client of object stores is known to its own room only"),
    ("clonos_py/task/bad.py", "clonos_py.object_store", "Objects are known to checkpoint storage and connectors only"),
]
"""Modules, what each must not import, and the beginning of the contract's name."""


def test_an_import_against_the_direction_is_refused(project: Path) -> None:
    for number, (module, imported, _) in enumerate(AGAINST_THE_DIRECTION):
        (project / module.replace("bad", f"bad{number}")).write_text(f"import {imported}\n")
    result = lint_imports(project)
    assert result.returncode == 1, result.stdout
    *_, problems = result.stdout.partition("Broken contracts")
    for number, (module, imported, contract) in enumerate(AGAINST_THE_DIRECTION):
        name = module.removesuffix(".py").replace("/", ".").replace("bad", f"bad{number}")
        importer = name if name.startswith("clonos_py.") else f"clonos_py.{name}"
        _, _, broken = problems.partition(f"\n{contract}")
        broken = broken.partition("\n---")[2].partition("\n---")[0]
        assert f"{importer} -> {imported} " in broken, (contract, result.stdout)


def test_a_room_that_the_import_rules_do_not_name_is_refused(project: Path) -> None:
    (project / "clonos_py" / "attic").mkdir()
    (project / "clonos_py" / "attic" / "__init__.py").touch()
    result = lint_imports(project)
    assert result.returncode == 1, result.stdout
    assert "attic" in result.stdout


def test_the_import_rules_hold_without_a_planted_violation(project: Path) -> None:
    result = lint_imports(project)
    assert result.returncode == 0, result.stdout


SIDE_EFFECTS = (
    "import ray",
    "import socket",
    "import threading",
    "import asyncio",
    "import httpx",
    "import time",
    "from time import monotonic",
    "import datetime\n\nnow = datetime.datetime.now",
    "import random\n\nvalue = random.random",
    "from random import choice",
    "import numpy as np\n\nvalue = np.random.default_rng",
    "import os\n\nvalue = os.urandom",
    "import operators",
)
PURE_ROOMS = (
    *(
        "clonos_py/task",
        "clonos_py/link",
        "clonos_py/process",
        "clonos_py/causal",
        "clonos_py/dsl",
        "clonos_py/evaluation",
        "operators",
        "services",
    ),
    *(f"clonos_py/runtime/{room}" for room in ("executors", "world", "sim")),
    "bench/cluster",
)
EDGE_ROOMS = ("clonos_py/runtime", "clonos_py/runtime/ray", "clonos_py/runtime/local", "clonos_py/connectors", "bench")


def test_every_side_effect_is_banned_inside_and_allowed_at_the_edge(project: Path) -> None:
    planted = set()
    for number, effect in enumerate(SIDE_EFFECTS):
        for room in (*PURE_ROOMS, *EDGE_ROOMS):
            (project / room / f"bad{number}.py").write_text(effect + "\n")
        planted |= {f"{room}/bad{number}.py" for room in PURE_ROOMS}
    result = run(BIN / "ruff", "check", "--select=TID251", "--no-cache", "--output-format=concise", ".", cwd=project)
    found = {line.split(":")[0] for line in result.stdout.splitlines() if "TID251" in line}
    assert found == planted


ROOMS_OUTSIDE = {"bench", "cli", "connectors", "observe", "runtime", "testing"}
"""Rooms that may touch the world outside. Of ``evaluation`` its room Spark may, too."""


def test_every_room_is_named_as_pure_or_as_one_that_touches_the_world_outside() -> None:
    ignores = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    (pure,) = (pattern for pattern in ignores if pattern.startswith("!"))
    named = {part.removeprefix("clonos_py/") for part in pure[2 : pure.index("}")].split(",")}
    edge = [pattern for pattern, rules in ignores.items() if "TID251" in rules]
    assert edge == [pure, "clonos_py/evaluation/spark/**"]
    rooms = {path.parent.name for path in (ROOT / "clonos_py").glob("*/__init__.py")}
    assert {name for name in named if not name.startswith(("runtime/", "bench/"))} == rooms - ROOMS_OUTSIDE


def test_seeded_randomness_is_allowed_everywhere(project: Path) -> None:
    (project / "operators" / "seeded.py").write_text("import random\n\ngenerator = random.Random(7)\n")
    result = run(BIN / "ruff", "check", "--select=TID251", "--no-cache", ".", cwd=project)
    assert result.returncode == 0, result.stdout


def built(what: str, source: Path, out: Path) -> Path:
    """The wheel or the sdist of a source tree, as the build backend makes it."""
    build = f"from hatchling.build import build_{what}; print(build_{what}({str(out)!r}))"
    result = run(sys.executable, "-c", build, cwd=source)
    assert result.returncode == 0, result.stderr
    return out / result.stdout.strip().splitlines()[-1]


def held(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_contains_only_the_product_inside_the_package(tmp_path: Path) -> None:
    wheel = built("wheel", ROOT, tmp_path)
    names = held(wheel)
    compiler = any(hatch_build.compilers())
    assert ("clonos_py/columns/kernels/native.so" in names) == compiler
    assert wheel.stem.endswith(hatch_build.platform_tag() if compiler else "py3-none-any")
    assert "clonos_py/evaluation/spark/nexmark/q22.sql" in names
    tops = {name.split("/")[0] for name in names}
    assert {f"clonos_py/{folder}/__init__.py" for folder in SHIPPED} <= names
    assert "clonos_py/evaluation/nexmark/queries/q22.py" in names
    assert not [name for name in names if name.startswith("clonos_py/bench")]
    assert len(tops) == 2
    assert {top.split("-")[0] for top in tops} == {"clonos_py"}


def test_a_wheel_that_is_built_without_a_compiler_runs_on_every_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    app = Mock(display_warning=shown.append)
    data: dict[str, Any] = {"force_include": {}, "pure_python": True}
    hook = hatch_build.KernelsHook(str(ROOT), {}, Mock(), Mock(), str(ROOT), "wheel", app)
    monkeypatch.setenv("CC", "false")
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    assert data == {"force_include": {}, "pure_python": True}
    assert shown == ["the wheel has no native kernels: false: it ended with 1"]


def test_a_wheel_from_the_sdist_is_the_same_and_runs(tmp_path: Path) -> None:
    """``uv build`` makes it so. An archive has no links: their targets must lie in the package."""
    unpack(built("sdist", ROOT, tmp_path), tmp_path)
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert {path.name for path in source.iterdir()} == {
        *("clonos_py", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore", "hatch_build.py")
    }
    wheel = built("wheel", source, tmp_path)
    assert held(wheel) == held(built("wheel", ROOT, tmp_path / "direct"))
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    code = "import clonos_py.evaluation as found; print(found.__file__); from clonos_py.cli.main import main; "
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {code} main()"]
    for arguments, shown in (
        (("--help",), "Usage"),
        (("run", "q10", "--events", "10k", "--runtime", "local"), "10,000 events"),
    ):
        result = run(*command, "nexmark", *arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(str(installed))
        assert shown in result.stdout
