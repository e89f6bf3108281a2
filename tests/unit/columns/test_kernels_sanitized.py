"""The tests of native kernels with their generated inputs, under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hatch_build
from clonos_py.columns.kernels.sources import LIBRARY

ROOT = Path(__file__).parents[3]
FLAGS = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TESTS = ("test_kernels.py", "test_hash_index.py", "test_gathering.py", "test_first_in_groups.py")
RUN = """
import sys
from pathlib import Path
import pytest
from clonos_py.columns.kernels import library
library.FOLDER = Path(sys.argv[1])
assert library.missing() is None, library.missing()
raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""
BEYOND = """
import sys
from pathlib import Path
import numpy as np
from clonos_py.columns.kernels import library
native = library.load(Path(sys.argv[1]))
words = np.zeros(1_000, np.uint64)
native.short.clonos_mix(library.pointer(words, np.uint64, 0), 1_001)
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with the library under sanitizers, and the environment of a process that loads it."""
    folder = tmp_path_factory.mktemp("sanitized")
    try:
        hatch_build.build(folder / LIBRARY, *FLAGS)
    except hatch_build.NoCompilerError as error:
        pytest.skip(f"no compiler with sanitizers: {error}")
    command = [*next(hatch_build.compilers()), "-print-file-name=libasan.so"]
    runtime = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("the compiler has no shared library of the address sanitizer")
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return folder, {**_outside_of_tests(), **options, "LD_PRELOAD": runtime}


def _outside_of_tests() -> dict[str, str]:
    """The environment without what pytest has put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def test_kernels_neither_leave_their_arrays_nor_do_anything_undefined(sanitized: tuple[Path, dict[str, str]]) -> None:
    folder, environment = sanitized
    tests = [str(Path(__file__).with_name(name)) for name in TESTS]
    command = [sys.executable, "-c", RUN, str(folder), *tests]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "skipped" not in ended.stdout


def test_a_kernel_that_leaves_its_array_is_found(sanitized: tuple[Path, dict[str, str]]) -> None:
    folder, environment = sanitized
    command = [sys.executable, "-c", BEYOND, str(folder / LIBRARY)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "heap-buffer-overflow" in ended.stderr
    assert "clonos_mix" in ended.stderr
