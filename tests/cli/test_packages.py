"""What packages are made of, and that they hold it: the list of parts, the Debian package and the wheel of a built program, the images."""

import base64
import csv
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from conftest import BINARY, ROOT

BUILD = pathlib.Path(BINARY).parent


def output(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, check=True, text=True, **options).stdout


def test_the_list_of_parts_names_every_library(program):
    document = json.loads(output(ROOT / "scripts" / "sbom", BUILD))
    assert document["bomFormat"] == "CycloneDX" and document["metadata"]["component"]["name"] == "headrace"
    names = {component["name"] for component in document["components"]}
    assert {"libcurl4", "libssl3", "libfmt9", "libboost-dev", "libyaml-dev"} <= names and "cmake" not in names
    assert all(re.fullmatch(r"pkg:deb/debian/.+@.+", component["purl"]) for component in document["components"])
    assert document["dependencies"][0]["dependsOn"] == [component["bom-ref"] for component in document["components"]]


# --- packages


def made(folder, cuda):
    """Packages of the built program, as of a build with CUDA or without: (Debian package, wheel)."""
    folder.mkdir()
    (folder / "headrace").symlink_to(BINARY)
    (folder / "lib").symlink_to(BUILD / "lib")
    (folder / "CMakeCache.txt").write_text(f"HEADRACE_CUDA:BOOL={'ON' if cuda else 'OFF'}\n")
    output(ROOT / "scripts" / "package", folder, env={**os.environ, "HEADRACE_PACKAGE_LEVEL": "0"})
    return next(folder.glob("*.deb")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module", params=[False, True], ids=["cpu", "cuda"])
def packages(request, program, tmp_path_factory):
    return (request.param, *made(tmp_path_factory.mktemp("packages") / "build", request.param))


def manual_pages(program):
    page = program.text("--help")
    listed = page[page.index("Commands:\n") + len("Commands:\n") : page.index("\n\n  --version")]
    names = [line[2:20].strip().replace(" ", "-") for line in listed.split("\n")]
    return {"headrace.1.gz"} | {f"headrace-{name}.1.gz" for name in names}


def test_the_debian_package_holds_all_that_belongs_to_the_program(packages, program, tmp_path):
    cuda, package, _ = packages
    fields = dict(line.split(": ", 1) for line in output("dpkg-deb", "-f", package).splitlines() if ": " in line)
    assert fields["Package"] == ("headrace-cuda" if cuda else "headrace") and package.name.startswith(fields["Package"] + "_")
    assert (fields.get("Conflicts"), fields.get("Provides")) == (("headrace", "headrace") if cuda else (None, None))
    assert re.fullmatch(r"libc6 \(>= 2\.\d+\), libstdc\+\+6 \(>= \d+(\.\d)?\), libgcc-s1", fields["Depends"])
    assert "GPU" in fields["Description"] + output("dpkg-deb", "-f", package, "Description") if cuda else True
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {f"usr/share/man/man1/{name}" for name in manual_pages(program)} == {name for name in files if "/man1/" in name}
    assert {"usr/bin/headrace", "usr/lib/headrace/headrace", "usr/lib/headrace/lib/libcurl.so.4", "usr/share/doc/headrace/copyright",
            "usr/share/doc/headrace/sbom.cdx.json", "usr/share/bash-completion/completions/headrace",
            "usr/share/zsh/vendor-completions/_headrace", "usr/share/fish/vendor_completions.d/headrace.fish",
            "lib/systemd/system/headrace.service"} <= files  # fmt: skip
    unit = (tmp_path / "lib/systemd/system/headrace.service").read_text()
    assert "\nExecStart=/usr/bin/headrace serve" in unit and ("\nPrivateDevices=" in unit) == (not cuda)
    assert output(tmp_path / "usr/bin/headrace", "--version", env={}) == program.text("--version")


def test_the_wheel_brings_the_program(packages, program, tmp_path):
    cuda, package, wheel = packages
    version = program.text("--version").split()[1:]
    assert wheel.name.startswith(f"headrace_program-{version[0]}+{version[1].strip('()')}{'.cuda' if cuda else ''}-py3-none-manylinux_2_")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        record = next(name for name in names if name.endswith("/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(packed.read(record).decode().splitlines())}
        assert set(rows) == set(names) and rows[record] == ["", ""]
        for name in set(names) - {record}:
            data = packed.read(name)
            assert rows[name] == ["sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), str(len(data))]
    environment = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-warn-script-location",
                    "--ignore-installed", "--prefix", environment, wheel], check=True)  # fmt: skip
    link = tmp_path / "headrace"
    link.symlink_to(environment / "bin/headrace")
    for start in (environment / "bin/headrace", link):
        assert output(start, "--version", env={"PATH": "/usr/bin:/bin"}) == program.text("--version")
    assert {path.name for path in (environment / "share/man/man1").iterdir()} == manual_pages(program)
    assert (environment / "share/doc/headrace-program/sbom.cdx.json").exists()


def test_the_same_program_gives_the_same_packages(packages, tmp_path):
    if not packages[0]:
        assert [path.read_bytes() for path in packages[1:]] == [path.read_bytes() for path in made(tmp_path / "again", False)]


def test_a_folder_without_a_program_is_one_line(tmp_path):
    done = subprocess.run([ROOT / "scripts" / "package", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "no program in" in done.stderr


def test_manual_pages_are_what_man_takes(program, tmp_path):
    program.text("man", "--pages", tmp_path / "man1")
    pages = {path.name for path in (tmp_path / "man1").iterdir()}
    assert {name.removesuffix(".gz") for name in manual_pages(program)} == pages
    for page in pages:
        text = (tmp_path / "man1" / page).read_text()
        assert text.startswith('.TH "') and "\n.SH NAME\n" in text and "\n.SH SYNOPSIS\n" in text, page
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-Kutf8", tmp_path / "man1/headrace-bench-serve.1"], capture_output=True, check=True)
        assert done.stderr == b"" and b"bench serve" in done.stdout
    assert "name none" in program.error("man", "serve", "--pages", tmp_path)
    assert "cannot be written" in program.error("man", "--pages", "/dev/null/man1")


# --- images


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_an_image_installs_what_the_build_needs(name):
    text = (ROOT / "deploy" / name).read_text()
    listing = re.search(r"awk '(.+)' /packages.txt", text)[1]
    packages = output("awk", listing, ROOT / "scripts" / "packages.txt").split()
    assert "g++" in packages and "libcurl4-openssl-dev" in packages and "clang" not in packages
    assert "python3" in text  # scripts/sbom, scripts/program_wheel.py
    for path in re.findall(r"(?:^COPY|&& )(?:--\S+ )? ?(scripts/\S+)", text, re.MULTILINE):
        assert (ROOT / path).exists(), path
    assert re.findall(r"^(FROM|USER|ENTRYPOINT)", text, re.MULTILINE) == ["FROM", "FROM", "USER", "ENTRYPOINT"]
    preset = re.search(r"cmake --preset (\w+)", text)[1]
    presets = {each["name"]: each for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    assert (presets[preset].get("cacheVariables", {}).get("HEADRACE_CUDA") == "ON") == (name == "Dockerfile.cuda")
    package = "headrace-cuda" if name == "Dockerfile.cuda" else "headrace"
    assert set(re.findall(r"[\w-]+(?=_\*\.deb)", text)) == {package}
