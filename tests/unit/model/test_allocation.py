"""Arrow's memory has no huge pages and is kept, in every process that imports the package before Arrow."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clonos_py.model.allocation import KEPT_SMALL_PAGES, prepare


def test_importing_the_package_turns_huge_pages_off_and_keeps_memory_before_arrow_is_loaded() -> None:
    code = "import clonos_py, os, sys; print(*[os.environ[n] for n in %r], 'pyarrow' in sys.modules)"
    code %= (list(KEPT_SMALL_PAGES),)
    environment = {key: value for key, value in os.environ.items() if key not in KEPT_SMALL_PAGES}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["0", "-1", "False"]


def test_what_the_environment_says_and_what_arrow_has_read_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    late: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, "pyarrow", sys)
    prepare(late)
    assert late == {}
    monkeypatch.delitem(sys.modules, "pyarrow")
    chosen = {"MIMALLOC_ALLOW_THP": "1"}
    prepare(chosen)
    assert chosen == {"MIMALLOC_ALLOW_THP": "1", "MIMALLOC_PURGE_DELAY": "-1"}
