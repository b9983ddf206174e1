"""What packages are made of: the list of parts names every library that travels with the program."""

import json
import pathlib
import re
import subprocess

from conftest import BINARY, ROOT

BUILD = pathlib.Path(BINARY).parent


def test_the_list_of_parts_names_every_library(program):
    document = json.loads(subprocess.run([ROOT / "scripts" / "sbom", BUILD], capture_output=True, check=True, text=True).stdout)
    assert document["bomFormat"] == "CycloneDX" and document["metadata"]["component"]["name"] == "headrace"
    names = {component["name"] for component in document["components"]}
    assert {"libcurl4", "libssl3", "libfmt9", "libboost-dev", "libyaml-dev"} <= names and "cmake" not in names
    assert all(re.fullmatch(r"pkg:deb/debian/.+@.+", component["purl"]) for component in document["components"])
    assert document["dependencies"][0]["dependsOn"] == [component["bom-ref"] for component in document["components"]]


def test_the_image_installs_what_the_build_needs():
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    listing = re.search(r"awk '(.+)' /packages.txt", text)[1]
    packages = subprocess.run(["awk", listing, ROOT / "scripts" / "packages.txt"], capture_output=True, text=True).stdout.split()
    assert "g++" in packages and "libcurl4-openssl-dev" in packages and "clang" not in packages
    for path in re.findall(r"(?:^COPY|&& )(?:--\S+ )? ?(scripts/\S+)", text, re.MULTILINE):
        assert (ROOT / path).exists(), path
    assert re.findall(r"^(FROM|USER|ENTRYPOINT)", text, re.MULTILINE) == ["FROM", "FROM", "USER", "ENTRYPOINT"]
