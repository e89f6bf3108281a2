"""The library of native kernels: it is built, loaded if it fits, and otherwise refused in one line."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hatch_build
from clonos_py.columns.kernels import library as module
from clonos_py.columns.kernels.library import UnfitLibraryError, load, missing, pointer
from clonos_py.columns.kernels.sources import FOLDER, LIBRARY, version
from clonos_py.columns.views import Words

needs_compiler = pytest.mark.skipif(not any(hatch_build.compilers()), reason="there is no C compiler")


def compiled(code: str, folder: Path) -> Path:
    """A library of this code."""
    source, made = folder / "code.c", folder / LIBRARY
    source.write_text(code)
    compiler = next(hatch_build.compilers())
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


@needs_compiler
def test_the_library_is_built_and_fits(tmp_path: Path) -> None:
    hatch_build.build(tmp_path / LIBRARY)
    assert load(tmp_path / LIBRARY).long.clonos_kernels_version() == version()


@needs_compiler
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("int other(void) { return 1; }", "cannot be loaded: .*clonos_kernels_version"),
        (
            "unsigned long long clonos_kernels_version(void) { return 1; }",
            "built of other sources: `make setup` builds it again",
        ),
    ],
)
def test_a_library_without_a_symbol_or_of_other_sources_is_refused(code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnfitLibraryError, match=said):
        load(compiled(code, tmp_path))


@needs_compiler
def test_a_library_that_was_built_before_a_source_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hatch_build.build(tmp_path / LIBRARY)
    monkeypatch.setattr(module, "version", lambda: version() ^ 1)
    with pytest.raises(UnfitLibraryError, match="built of other sources: `make setup` builds it again"):
        load(tmp_path / LIBRARY)


def test_a_file_that_is_no_library_of_this_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_bytes(b"\x7fELF for another machine")
    with pytest.raises(UnfitLibraryError, match="cannot be loaded"):
        load(tmp_path / LIBRARY)
    with pytest.raises(UnfitLibraryError, match="does not exist: `make setup` builds it"):
        load(tmp_path / "absent.so")


def test_the_version_follows_from_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = version()
    copy = tmp_path / "kernels"
    shutil.copytree(FOLDER, copy)
    monkeypatch.setattr("clonos_py.columns.kernels.sources.FOLDER", copy)
    assert version() == before
    for file in sorted(copy.glob("*.[ch]")):
        text = file.read_text()
        file.write_text(text + " ")
        assert version() != before, file
        file.write_text(text)


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
def test_a_compiler_that_fails_leaves_no_library_and_is_one_line(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(hatch_build, "ROOT", tmp_path)
    folder = tmp_path / hatch_build.PLACE
    shutil.copytree(FOLDER, folder)
    (folder / LIBRARY).write_bytes(b"of an earlier build")
    hatch_build.main()
    assert not (folder / LIBRARY).exists()
    said = capsys.readouterr().err
    assert said.startswith("native kernels are not built, jobs with keyed state are slower: ")
    assert compiler in said
    assert said.count("\n") == 1


def test_without_a_compiler_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hatch_build.NoCompilerError, match="install cc or the package ziglang"):
        hatch_build.build(tmp_path / LIBRARY)


def test_the_compiler_of_a_package_is_used_after_cc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert list(hatch_build.compilers()) == [["cc"], [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]]


def test_kernels_that_are_missing_are_said_in_one_line_and_kernels_that_are_off_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    found = module._found.__wrapped__
    native, why = found()
    assert native is None
    assert why is not None
    assert why.startswith("there are no native kernels, so keyed state is slower, with the same results: ")
    assert "\n" not in why
    monkeypatch.setenv(module.SWITCH, "off")
    assert found() == (None, None)


def test_this_checkout_has_the_library_unless_there_is_no_compiler() -> None:
    assert missing() is None or not any(hatch_build.compilers()), missing()


WORDS = np.arange(8, dtype=np.uint64)


@pytest.mark.parametrize(
    ("values", "count"), [(WORDS, 9), (WORDS[::2], 4), (WORDS.view(np.int64), 8), (WORDS.reshape(2, 4), 2)]
)
def test_an_array_that_breaks_what_a_kernel_assumes_is_refused(values: Words, count: int) -> None:
    with pytest.raises(ValueError, match=f"a kernel takes {count} contiguous values of type uint64"):
        pointer(values, np.uint64, count)
