"""Finding Java: the first suitable one, and one line on what to install if there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from clonos_py.model.errors import SparkError
from clonos_py.runtime import java
from clonos_py.runtime.java import java_home


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "_PLACES", ((str(tmp_path / "jvm"), "*"),))


def a_java(home: Path, version: str, whole: bool = True) -> str:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    lacking = "" if whole else 'case "$1" in --add-modules*) exit 1;; esac\n'
    program.write_text(f"#!/bin/sh\n{lacking}echo 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return str(home)


def test_java_home_is_tried_first(tmp_path: Path) -> None:
    home, on_path = a_java(tmp_path / "a", "21.0.2"), a_java(tmp_path / "b", "17.0.1")
    assert java_home({"JAVA_HOME": home, "PATH": f"{on_path}/bin"}) == home
    assert java_home({"PATH": f"{on_path}/bin"}) == on_path


def test_an_unsuitable_java_is_skipped(tmp_path: Path) -> None:
    old, cut = a_java(tmp_path / "old", "1.8.0_392"), a_java(tmp_path / "cut", "21", whole=False)
    installed = a_java(tmp_path / "jvm" / "java-17", "17.0.15")
    assert java_home({"JAVA_HOME": old, "PATH": f"{cut}/bin"}) == installed


def test_without_a_suitable_java_the_error_says_why_and_what_to_install(tmp_path: Path) -> None:
    old, cut = a_java(tmp_path / "old", "11.0.2"), a_java(tmp_path / "cut", "21", whole=False)
    with pytest.raises(SparkError) as error:
        java_home({"JAVA_HOME": old, "PATH": f"{cut}/bin:{tmp_path}"})
    assert f"found: {old} (Java 11), {cut} (Java 21 without all its modules); install one (Debian" in str(error.value)
    with pytest.raises(SparkError, match="none was found; install one"):
        java_home({"PATH": str(tmp_path)})
    with pytest.raises(SparkError, match="No such file"):
        java_home({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path)})


@pytest.mark.parametrize(("user", "installed"), [("0", True), ("1000", False)])
def test_the_makefile_installs_java_if_it_may(tmp_path: Path, user: str, installed: bool) -> None:
    """Stand-ins for id, apt-get and a Python that finds Java once it was installed."""
    there = tmp_path / "there"
    programs = {
        "id": f"echo {user}",
        "apt-get": f'case "$*" in *default-jre-headless*) touch {there};; esac',
        "python": f"test -e {there} || {{ echo 'install one (Debian ...)' >&2; exit 1; }}",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = Path(__file__).parents[3] / "deploy" / "java.sh"
    completed = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=True)
    assert there.exists() == installed
    assert ("installing Java" in completed.stdout, "install one" in completed.stderr) == (installed, not installed)
