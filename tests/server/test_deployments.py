"""What deploy/ has is sound by the rules of those who read it: Kubernetes' schemas, systemd."""

import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import BINARY

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"


def test_the_manifests_are_kubernetes():
    validate = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")
    resources = [each for file in sorted((DEPLOY / "kubernetes").glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    assert {each["kind"] for each in resources} >= {"Service", "Deployment", "NetworkPolicy"}
    newest = validate.latest_version()
    for resource in resources:
        validate.validate(resource, newest, strict=True)
    broken = next(each for each in resources if each["kind"] == "Deployment")
    broken["spec"]["replica"] = broken["spec"].pop("replicas")
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, newest, strict=True)


def test_the_units_are_systemds(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    units = []
    for unit in sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.socket")]):
        copy = tmp_path / unit.name
        copy.write_text(re.sub(r"/usr/local/bin/headrace", BINARY, unit.read_text()))
        units.append(copy)
    assert {unit.suffix for unit in units} == {".service", ".socket"}

    def verified():
        run = subprocess.run(["systemd-analyze", "verify", *map(str, units)], capture_output=True, text=True, timeout=60)
        return run.returncode, run.stdout + run.stderr

    code, said = verified()
    if "Failed to" in said and "manager" in said:
        pytest.skip("systemd-analyze cannot look at units here: " + said.splitlines()[0])
    mine = [line for line in said.splitlines() if "headrace" in line]
    assert code == 0 and not mine, said
    units[0].write_text(units[0].read_text().replace("[Service]", "[Service]\nNoSuchSetting=yes"))
    assert "NoSuchSetting" in verified()[1]
