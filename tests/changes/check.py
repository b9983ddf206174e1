#!/usr/bin/env python3
"""Holds docs/changing.md against the patches beside this file: each row's patch applies to the tree and touches the files that the
row names, and each patch has a row. tests/changes/check.py [PATCH...] checks these patches alone."""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def rows():
    """Patch -> files, as the table has them."""
    table = {}
    for line in (ROOT / "docs/changing.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[-1].endswith(".patch`"):
            table[cells[-1].strip("`")] = set(re.findall(r"`([^`]+/[^`]+)`", cells[-2]))
    return table


def problems_of(name, files):
    patch = HERE / name
    if not patch.exists():
        return [f"{name}: there is no such patch"]
    touched = set(re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M))
    found = [f"{name}: touches {file}, which docs/changing.md does not say" for file in sorted(touched - files)]
    found += [f"{name}: does not touch {file}" for file in sorted(files - touched)]
    applied = subprocess.run(["patch", "--dry-run", "-s", "-f", "-F0", "-p1", "-i", str(patch)], cwd=ROOT, capture_output=True, text=True)
    return found if applied.returncode == 0 else found + [f"{name}: does not apply: {(applied.stdout + applied.stderr).strip()}"]


def main():
    table = rows()
    names = sys.argv[1:] or sorted(set(table) | {patch.name for patch in HERE.glob("*.patch")})
    found = [problem for name in names for problem in problems_of(name, table.get(name, set()))]
    print("\n".join(found) if found else f"{len(names)} changes apply and touch what docs/changing.md says")
    return 1 if found else 0


sys.exit(main())
