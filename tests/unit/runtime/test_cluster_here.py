"""Which cluster ``clonos stop`` means without an address, and what is said of one that cannot be started or joined."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import ray
from ray._private.utils import check_version_info

from clonos_py.cli.main import invoke
from clonos_py.model.errors import ClusterError, SettingError
from clonos_py.runtime.ray import cluster, process_table
from clonos_py.runtime.ray.process_table import ProcessEntry


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def running(monkeypatch: pytest.MonkeyPatch, *commands: bytes) -> None:
    def entries() -> Iterator[tuple[ProcessEntry, bytes]]:
        yield from ((ProcessEntry(number, 1, 0), command) for number, command in enumerate(commands))

    monkeypatch.setattr(process_table, "entries", entries)


def test_it_is_the_only_one_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, b"bash\0", b"raylet\0--gcs-address=10.0.0.1:6379\0", b"worker\0--gcs-address=10.0.0.1:6379\0")
    assert cluster.address_here() == "auto"


def test_it_is_the_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.9:6379")
    assert cluster.address_here() == "10.0.0.9:6379"


def test_none_and_several_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, b"bash\0echo --gcs-address=10.0.0.1:1\0")
    with pytest.raises(SettingError, match=r"^no Ray runs on this machine; name the cluster with --address$"):
        cluster.address_here()
    running(monkeypatch, b"raylet\0--gcs-address=10.0.0.2:1\0", b"raylet\0--gcs-address=10.0.0.1:1\0")
    with pytest.raises(SettingError, match=r"^several run here: 10\.0\.0\.1:1, 10\.0\.0\.2:1; name the cluster with"):
        cluster.address_here()


def test_the_address_may_be_a_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLONOS_ADDRESS", "127.0.0.1:1")
    assert invoke(["stop", "job"]) == 1
    assert capsys.readouterr().err.startswith("error: no Ray cluster answers at 127.0.0.1:1: ")


@pytest.mark.parametrize("kind", [Exception, RuntimeError, ConnectionError, AssertionError])
def test_whatever_ray_raises_when_it_starts_is_one_line_with_a_remedy(kind: type[Exception]) -> None:
    """On a busy machine it raises a plain Exception."""

    class Ray(ModuleType):
        def init(self, **options: object) -> None:
            raise kind("the current node timed out during startup\nmore of it")

    with pytest.raises(ClusterError, match=r"^a local Ray cannot be started: the current node timed out .*; or use"):
        cluster._start(Ray("ray"))
    with pytest.raises(ClusterError, match=r"^no Ray cluster can be joined at a:1: the current node timed out"):
        cluster._join(Ray("ray"), "a:1")


def test_a_cluster_of_another_version_is_named_with_both_versions() -> None:
    theirs = {"ray_version": "2.55.0", "python_version": "3.12.1"}
    ours = ".".join(map(str, sys.version_info[:3]))

    class Ray(ModuleType):
        def init(self, **options: object) -> None:
            check_version_info(theirs, "node 10.0.0.1")

    with pytest.raises(ClusterError) as refused:
        cluster._join(Ray("ray"), "a:1")
    assert str(refused.value) == (
        f"no Ray cluster can be joined at a:1: it runs Ray 2.55.0 and Python 3.12.1, and this process Ray "
        f"{ray.__version__} and Python {ours}: start this command from an environment with the versions of the "
        "cluster, or the cluster with these"
    )
