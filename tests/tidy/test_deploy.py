"""The files for deployment, as far as they can be checked without what they deploy to."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _entrypoint() -> list[str]:
    [entry] = [json.loads(rest) for word, rest in _instructions() if word == "ENTRYPOINT"]
    return list(entry)


def _compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def _unit(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", (DEPLOY / "loom.service").read_text("utf-8"), re.MULTILINE)
    return str(value)


@pytest.mark.parametrize("command", [_entrypoint(), shlex.split(_unit("ExecStart"))], ids=["image", "unit"])
def test_the_command_is_one_that_loom_knows(command: list[str]) -> None:
    assert command[0].rpartition("/")[2] == "loom"
    options = [word for word in command[1:] if not word.startswith("/")]
    done = subprocess.run(
        [sys.executable, "-m", "loom", *options, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "loom serve" in done.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "loom", *options, "--no-such-option"], capture_output=True, text=True, check=False
    )
    assert "No such option '--no-such-option'" in wrong.stderr, "an option before it is not known"


def test_what_the_image_copies_is_there() -> None:
    for word, rest in _instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert [name for name in sources if not (ROOT / name).exists()] == []


def test_the_image_asks_for_a_key_and_runs_as_nobody_special() -> None:
    assert "--require-key" in _entrypoint()
    users = [rest for word, rest in _instructions() if word == "USER"]
    assert users
    assert "root" not in users


def test_the_services_fit_the_image() -> None:
    server = _compose()["services"]["server"]
    folder = DEPLOY / server["volumes"][0].partition(":")[0]
    assert list(folder.glob("*.json"))
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).exists()
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


def test_the_bill_of_materials_has_every_pin() -> None:
    done = subprocess.run([sys.executable, str(DEPLOY / "sbom.py")], capture_output=True, text=True, check=True)
    bill = json.loads(done.stdout)
    named = {component["name"]: component for component in bill["components"]}
    pins = (ROOT / "requirements" / "deploy.txt").read_text("utf-8")
    assert sorted(named) == sorted(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", pins, re.MULTILINE))
    hashes = [each for component in named.values() for each in component["properties"] if each["name"] == "loom:sha256"]
    assert len(hashes) == pins.count("--hash=sha256:")
    assert named["starlette"]["purl"] == f"pkg:pypi/starlette@{named['starlette']['version']}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "loom.service"
    text = (DEPLOY / "loom.service").read_text("utf-8")
    unit.write_text(text.replace("/opt/loom/bin/loom", sys.executable))  # it checks that the program is there
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_has_the_page(tmp_path: Path) -> None:
    """Build the wheel from what the Dockerfile copies, and from nothing else."""
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert not [line for line in ignored if "dist" in line and "*" in line], "src/loom/web/dist goes along"
    for word, rest in _instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            for source in sources:
                into = tmp_path / source
                into.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, into)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    [wheel] = (tmp_path / "wheels").iterdir()
    names = set(zipfile.ZipFile(wheel).namelist())
    page = ROOT / "src" / "loom" / "web" / "dist"
    built = {f"loom/web/dist/{path.relative_to(page).as_posix()}" for path in page.rglob("*") if path.is_file()}
    assert "loom/web/dist/index.html" in built
    assert built - names == set()


KUBERNETES = DEPLOY / "kubernetes"


def _objects(kind: str) -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))
    files = [(KUBERNETES / name).read_text("utf-8") for name in kustomization["resources"]]
    return [each for text in files for each in yaml.safe_load_all(text) if each["kind"] == kind]


def _pods() -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"]["template"] for each in _objects("Deployment")}


def test_servers_and_workers_are_two_deployments() -> None:
    commands = {name: pod["spec"]["containers"][0]["command"] for name, pod in _pods().items()}
    assert commands == {"loom-server": ["loom", "serve"], "loom-worker": ["loom", "worker"]}


def test_selectors_find_their_pods() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in _pods().items()}
    for each in _objects("Deployment"):
        assert each["spec"]["selector"]["matchLabels"] == labels[each["metadata"]["name"]]
    [service] = _objects("Service")
    assert service["spec"]["selector"] == labels["loom-server"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    assert {each["metadata"]["name"] for each in _objects("PodDisruptionBudget")} == {*labels}
    for each in _objects("PodDisruptionBudget"):
        assert each["spec"]["selector"]["matchLabels"] == labels[each["metadata"]["name"]]


@pytest.mark.parametrize("name", ["loom-server", "loom-worker"])
def test_a_pod_has_probes_on_its_health_port_and_few_rights(name: str) -> None:
    spec = _pods()[name]["spec"]
    [container] = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"--health-port={ports['health']}" in container["args"]
    probes = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {probe["port"] for probe in probes.values()} == {"health"}
    assert {probe["path"].partition("?")[0] for probe in probes.values()} == {"/ready", "/live"}
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]}


def test_the_image_and_the_pods_run_as_the_same_user() -> None:
    [user] = re.findall(r"useradd .*--uid (\d+)", (DEPLOY / "Dockerfile").read_text("utf-8"))
    assert {pod["spec"]["securityContext"]["runAsUser"] for pod in _pods().values()} == {int(user)}


def test_the_stop_has_the_time_that_it_needs() -> None:
    server = _pods()["loom-server"]["spec"]
    [container] = server["containers"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    help_text = subprocess.run(
        [sys.executable, "-m", "loom", "serve", "--help"], capture_output=True, text=True, check=True
    ).stdout
    [drain] = re.findall(r"--drain.*?default: (\d+)s", help_text, re.DOTALL)
    assert server["terminationGracePeriodSeconds"] > pause + int(drain)


def test_the_flows_that_are_mounted_are_there() -> None:
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))
    [flows] = kustomization["configMapGenerator"]
    assert [name for name in flows["files"] if not (KUBERNETES / name).exists()] == []
    [container] = _pods()["loom-worker"]["spec"]["containers"]
    assert {"name": "flows", "mountPath": "/flows", "readOnly": True} in container["volumeMounts"]
    assert {"name": "flows", "configMap": {"name": flows["name"]}} in _pods()["loom-worker"]["spec"]["volumes"]
