"""The manifests for KubeRay: rendered, checked, and run, each node with just its command, environment and resources.

What only a cluster of Kubernetes can show is listed in docs/tasks/kubernetes.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from clonos_py.bench.ports import free_ports
from clonos_py.runtime.ray.cluster import PREPARED_RESOURCE, WORKER_ENVIRONMENT
from tests.ray.numbers_command import JOB
from tests.s3_server import S3Server, running
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, wait_until

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kuberay"
FOLDERS = ("cluster", "overlays/s3", "overlays/s3-tls", "job")
BIN = Path(sys.executable).parent
CRDS = os.environ.get("KUBERAY_CRDS")
TOTAL = 60_000

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
Manifest = dict[str, Any]


def rendered(folder: str) -> list[Manifest]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(MANIFESTS / folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def cluster_spec(manifests: Sequence[Manifest]) -> Manifest:
    clusters = [cluster["spec"] for cluster in of_kind(manifests, "RayCluster")]
    (found,) = [*clusters, *(job["spec"]["rayClusterSpec"] for job in of_kind(manifests, "RayJob"))]
    return found  # type: ignore[no-any-return]


def groups(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The head, and then each group of workers."""
    spec = cluster_spec(manifests)
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def container(group: Manifest) -> Manifest:
    (found,) = group["template"]["spec"]["containers"]
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_rendered_is_valid(folder: str) -> None:
    manifests, version = rendered(folder), kubernetes_validate.latest_version()
    for manifest in manifests:
        if manifest["apiVersion"] in ("v1", "apps/v1"):
            kubernetes_validate.validate(manifest, version, strict=True)
    for group in groups(manifests):
        pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.skipif(CRDS is None, reason="KUBERAY_CRDS names no folder with the CRDs of KubeRay")
@pytest.mark.parametrize("folder", FOLDERS)
def test_kuberay_knows_all_fields(folder: str) -> None:
    import jsonschema

    assert CRDS is not None
    definitions = [yaml.safe_load(path.read_text()) for path in Path(CRDS).glob("*.yaml")]
    schemas = {
        definition["spec"]["names"]["kind"]: version["schema"]["openAPIV3Schema"]
        for definition in definitions
        for version in definition["spec"]["versions"]
        if version["name"] == "v1"
    }
    for manifest in rendered(folder):
        if manifest["apiVersion"] == "ray.io/v1":
            jsonschema.validate(manifest, closed(schemas[manifest["kind"]]))


def closed(schema: Any) -> Any:
    """A schema of Kubernetes in which no unknown field is allowed."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_name_that_is_used_is_there(folder: str) -> None:
    manifests = rendered(folder)
    maps = {found["metadata"]["name"] for found in of_kind(manifests, "ConfigMap")}
    labels = [group["template"]["metadata"]["labels"] for group in groups(manifests)]
    labels += [found["spec"]["template"]["metadata"]["labels"] for found in of_kind(manifests, "StatefulSet")]
    ports = {port["name"] for group in groups(manifests) for port in container(group)["ports"]} | {"redis"}
    for group in groups(manifests):
        assert {mount["name"] for mount in container(group)["volumeMounts"]} == {
            volume["name"] for volume in group["template"]["spec"]["volumes"]
        }
        assert maps >= {name for source in container(group)["envFrom"] if (name := config_of(source))}
        security = group["template"]["spec"]["securityContext"]
        assert security["runAsNonRoot"]
    for service in of_kind(manifests, "Service"):
        assert any(service["spec"]["selector"].items() <= found.items() for found in labels)
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for monitor in of_kind(manifests, "PodMonitor"):
        assert any(monitor["spec"]["selector"]["matchLabels"].items() <= found.items() for found in labels)
        assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports


@pytest.mark.parametrize("folder", FOLDERS)
def test_nodes_have_what_processes_of_jobs_need(folder: str) -> None:
    manifests = rendered(folder)
    assert cluster_spec(manifests)["authOptions"] == {"mode": "token"}
    for group in groups(manifests):
        assert environment(manifests, group).items() >= WORKER_ENVIRONMENT.items()
        assert f'--resources={{"{PREPARED_RESOURCE}": 1}}' in options(group)
    head, *workers = groups(manifests)
    assert head["rayStartParams"]["num-cpus"] == "0", "tasks have workers of their own"
    assert workers


def environment(manifests: Sequence[Manifest], group: Manifest) -> dict[str, str]:
    """The environment of a pod, without what its secrets hold."""
    found: dict[str, str] = {}
    for source in container(group)["envFrom"]:
        if name := config_of(source):
            (config,) = (c for c in of_kind(manifests, "ConfigMap") if c["metadata"]["name"] == name)
            found |= config["data"]
    return found | {entry["name"]: entry["value"] for entry in container(group).get("env", ())}


def config_of(source: Manifest) -> str | None:
    """The config map that a source of an environment names, if it names one."""
    return source["configMapRef"]["name"] if "configMapRef" in source else None


def options(group: Manifest) -> list[str]:
    """The options of ``ray start`` that KubeRay makes, which a shell parses: from the parameters, and from the limits
    of the container."""
    limits = container(group)["resources"]["limits"]
    memory_bytes = int(limits["memory"].removesuffix("Gi")) << 30
    found = {"num-cpus": limits["cpu"], "memory": str(memory_bytes)} | group["rayStartParams"]
    return shlex.split(" ".join(f"--{name}={value}" for name, value in found.items()))


# ---- run


class Nodes:
    """A Ray cluster as the manifests describe it. ``secrets``: the environment that the pods get besides."""

    def __init__(self, manifests: Sequence[Manifest], folder: Path, secrets: Mapping[str, str]) -> None:
        self._manifests, self._folder = manifests, folder
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._secrets = {**secrets, "RAY_AUTH_MODE": "token", "PATH": f"{BIN}:{os.environ['PATH']}"}
        self._secrets |= {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        self._started: list[subprocess.Popen[bytes]] = []

    def environment(self, group: Manifest) -> dict[str, str]:
        found = environment(self._manifests, group) | self._secrets
        return {name: value for name, value in found.items() if not name.startswith("CLONOS_WEB")}

    def start(self, workers: int) -> None:
        head, *others = groups(self._manifests)
        port = self.address.rpartition(":")[2]
        self._start(head, "--head", f"--port={port}", "--include-dashboard=false")
        for _ in range(workers):
            self._start(others[0], f"--address={self.address}")

    def _start(self, group: Manifest, *where: str) -> None:
        log = self._folder / f"node-{len(self._started)}.log"
        own = ["--block", "--node-ip-address=127.0.0.1", "--include-log-monitor=false", "--no-monitor"]
        own = own if "--head" in where else own[:-1]
        command = [str(BIN / "ray"), "start", *where, *own, *options(group)]
        with log.open("wb") as out:
            self._started.append(
                subprocess.Popen(
                    command, env=self.environment(group), start_new_session=True, stdout=out, stderr=subprocess.STDOUT
                )
            )
        wait_until(lambda: "Ray runtime started" in log.read_text(), shown=log.read_text)

    def submitted(self, entrypoint: str) -> subprocess.Popen[str]:
        """Runs a command on the head, as Ray runs that of a submitted job."""
        found = self.environment(groups(self._manifests)[0])
        found |= {"RAY_ADDRESS": self.address, "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(shlex.split(entrypoint), env=found, cwd=self._folder, text=True, **pipes)

    def lose(self) -> None:
        """All pods are gone at once."""
        for node in self._started:
            with suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
            node.wait()


@contextmanager
def nodes(folder: Path, secrets: Mapping[str, str], workers: int = 1) -> Iterator[Nodes]:
    found = Nodes(rendered("job"), folder, secrets)
    try:
        found.start(workers)
        yield found
    finally:
        found.lose()


@pytest.fixture
def store() -> Iterator[S3Server]:
    with running() as server:
        server.client().create_bucket(Bucket="clonos")
        yield server


def entrypoint() -> str:
    (job,) = of_kind(rendered("job"), "RayJob")
    return str(job["spec"]["entrypoint"]).replace("/opt/clonos", str(ROOT))


@pytest.mark.ray
@pytest.mark.thorough
def test_the_job_goes_on_in_another_cluster_after_its_own_was_lost(tmp_path: Path, store: S3Server) -> None:
    (tmp_path / "job.py").write_text(JOB)
    example = f"{ROOT}/examples/word_count.py --out /tmp/words"
    assert example in entrypoint()
    given = f"--folder {tmp_path / 'out'} --total {TOTAL} --unpaced {tmp_path / 'unpaced'} --checkpoint-interval 500ms"
    command = entrypoint().replace(example, f"{tmp_path / 'job.py'} {given}")
    secrets = {name: value for name, value in store.environment.items() if name != "AWS_REGION"}

    def checkpoints() -> int:
        found = store.client().list_objects_v2(Bucket="clonos", Prefix="checkpoints/numbers/")
        return len([item for item in found.get("Contents", ()) if "manifest" in item["Key"]])

    with nodes(tmp_path, secrets) as first:
        run = first.submitted(command)
        wait_until(lambda: checkpoints() > 0, shown=lambda: (run.poll(), store.seen[-20:]))
        first.lose()
        printed, _ = run.communicate(timeout=WAIT_S_MAX)
        assert run.returncode == 1, printed
        assert "checkpoint" in printed
    (tmp_path / "unpaced").touch()
    with nodes(tmp_path, secrets) as second:
        run = second.submitted(command)
        printed, _ = run.communicate(timeout=WAIT_S_MAX)
        assert run.returncode == 0, printed
        read = re.search(r"([\d,]+) rows read", printed)
        assert read is not None, printed
        assert int(read[1].replace(",", "")) < TOTAL, "the others were read before"
    assert sorted(row["id"] for row in visible_rows(tmp_path / "out")) == list(range(TOTAL))
