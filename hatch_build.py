"""Builds the library of native kernels: as a command into the package (``make setup``), as a build hook into wheels.

python hatch_build.py

Without a compiler both go on without the library, and say so in one line: NumPy does the same work.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
PLACE = Path("clonos_py", "columns", "kernels")
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror=implicit")


class NoCompilerError(Exception):
    """No compiler has built the library."""


def main() -> None:
    try:
        build(ROOT / PLACE / _sources().LIBRARY)
    except NoCompilerError as error:
        print(f"native kernels are not built, jobs with keyed state are slower: {error}", file=sys.stderr)


def build(library: Path, *more: str) -> None:
    """Compiles the sources with the first compiler that can. ``more``: further flags. Raises NoCompilerError, and
    leaves no library then: an earlier one may be of other sources."""
    found = _sources()
    library.unlink(missing_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, library.name)
        for compiler in compilers():
            flags = [*FLAGS, *more, f"-DCLONOS_KERNELS_VERSION={found.version():#x}ull"]
            command = [*compiler, *flags, "-o", str(made), *map(str, found.sources())]
            try:
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                problems.append(f"{shlex.join(compiler)}: {error.strerror}")
                continue
            if ended.returncode == 0:
                shutil.move(made, library)
                return
            said = (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[0]
            problems.append(f"{shlex.join(compiler)}: {said}")
    raise NoCompilerError("; ".join(problems) or "there is no C compiler: install cc or the package ziglang")


def compilers() -> Iterator[list[str]]:
    """The compilers to try: that of the environment variable CC, or else cc and that of the package ziglang."""
    if chosen := shlex.split(os.environ.get("CC", "")):
        yield chosen
        return
    if shutil.which("cc"):
        yield ["cc"]
    if importlib.util.find_spec("ziglang"):
        # Else it makes code for this processor only, and the library may be used on another machine.
        yield [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]


def _sources() -> ModuleType:
    """The module that names the sources, without importing the package, which needs its dependencies."""
    spec = importlib.util.spec_from_file_location("sources", ROOT / PLACE / "sources.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def platform_tag() -> str:
    """The tag of a wheel that runs on this platform with any version of Python."""
    return f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


class KernelsHook(BuildHookInterface[Any]):
    """Puts the library into the wheel, whose tag then names the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # it uses the library of the checkout
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name, _sources().LIBRARY)
        try:
            build(library)
        except NoCompilerError as error:
            self.app.display_warning(f"the wheel has no native kernels: {error}")
            return
        build_data["force_include"][str(library)] = str(PLACE / library.name)
        build_data.update(pure_python=False, tag=platform_tag())

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()


if __name__ == "__main__":
    main()
