#!/usr/bin/env python3
"""scripts/program_wheel.py ROOT VERSION PLATFORM FOLDER: a wheel of the files that scripts/package laid out below ROOT/usr for the Debian package. It
has no Python: the program with its libraries, a script in bin/ that starts it, manual pages and completions."""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "headrace_program"
# Where the environment is, is known when it is started: pip, pipx and uv put a link to it elsewhere.
START = b'#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/../lib/headrace/headrace" "$@"\n'
METADATA = """Metadata-Version: 2.1
Name: headrace-program
Version: {version}
Summary: Runs and serves large language models: the program `headrace`, prebuilt
License: Apache-2.0
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: scripts/program_wheel.py\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
# Of Debian's folders those that have other names below an environment.
FOLDERS = {"share/zsh/vendor-completions": "share/zsh/site-functions", "share/doc/headrace": "share/doc/headrace-program"}


def contents(root, info, version, platform):
    """{path in the wheel: (bytes, whether it is a program)}"""
    data = f"{NAME}-{version}.data"
    found = {f"{data}/scripts/headrace": (START, True)}
    for path in sorted((root / "usr").rglob("*")):
        if path.is_symlink() or path.is_dir():
            continue
        place = path.relative_to(root / "usr")
        folder = FOLDERS.get(str(place.parent), str(place.parent))
        found[f"{data}/data/{folder}/{place.name}"] = (path.read_bytes(), os.access(path, os.X_OK))
    readme = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    found[f"{info}/METADATA"] = ((METADATA.format(version=version) + readme).encode(), False)
    found[f"{info}/WHEEL"] = (WHEEL.format(platform=platform).encode(), False)
    return found


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main():
    root, version, platform, folder = sys.argv[1:]
    info = f"{NAME}-{version}.dist-info"
    files = contents(pathlib.Path(root), info, version, platform)
    record = [f"{name},{digest(data)},{len(data)}" for name, (data, _) in files.items()] + [f"{info}/RECORD,,"]
    files[f"{info}/RECORD"] = (("\n".join(record) + "\n").encode(), False)
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800))[:6]  # a zip begins in 1980
    path = pathlib.Path(folder) / f"{NAME}-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, runs) in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(f"{path.stat().st_size} {path}")


main()
