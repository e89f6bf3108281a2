"""Finds a Java that Spark can use, or raises an error of one line that says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from clonos_py.model.errors import SparkError

OLDEST_JAVA = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_PLACES = (("/usr/lib/jvm", "*"), ("/Library/Java/JavaVirtualMachines", "*/Contents/Home"))
_REMEDY = (
    "install one (Debian and Ubuntu: apt-get install default-jre-headless; macOS: brew install openjdk@17), or set "
    "JAVA_HOME to one"
)


def java_home(environment: Mapping[str, str]) -> str:
    """The home of a Java that Spark can use, from the first of: JAVA_HOME, the PATH, the usual installation folders.

    Raises SparkError if there is none, and lists unsuitable ones.
    """
    unfit: dict[str, str] = {}
    for home in _homes(environment):
        if home not in unfit:
            why = _unfit(home)
            if why is None:
                return home
            unfit[home] = why
    found = "none was found" if not unfit else "found: " + ", ".join(f"{home} ({why})" for home, why in unfit.items())
    raise SparkError(f"Spark needs Java {OLDEST_JAVA} or newer, {found}; {_REMEDY}")


def _homes(environment: Mapping[str, str]) -> Iterator[str]:
    if environment.get("JAVA_HOME"):
        yield environment["JAVA_HOME"]
    java = shutil.which("java", path=environment.get("PATH"))
    if java:
        yield str(Path(java).resolve().parents[1])
    for folder, pattern in _PLACES:
        yield from (str(home) for home in sorted(Path(folder).glob(pattern)) if (home / "bin/java").exists())


def _unfit(home: str) -> str | None:
    """The reason why a Java is unsuitable, or None. Some installations lack a module that Spark requires."""
    java = os.path.join(home, "bin", "java")
    try:
        answer = _run(java, "-version")
        version = _VERSION.search(answer.stderr)
        if answer.returncode or version is None:
            return "it does not start"
        if int(version[1]) < OLDEST_JAVA:
            return f"Java {version[1]}"
        if _run(java, "--add-modules=jdk.incubator.vector", "-version").returncode:
            return f"Java {version[1]} without all its modules"
    except OSError as error:
        return str(error.strerror)
    return None


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Prints the home of Java, or what to install. The Makefile calls it."""
    try:
        sys.stdout.write(f"{java_home(os.environ)}\n")
    except SparkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
