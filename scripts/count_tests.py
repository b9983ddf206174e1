"""Counts the test cases in a folder of JUnit XML files: prints "passed failed skipped", or with --failed
the names of those that failed, a line each with what was said first.

ctest writes one case per program, GoogleTest and pytest one per test. A program that wrote a file
of its own is counted by that file; one that failed without saying why there (a crash, a leak found
at exit, a time-out) counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.get("status") in ("fail", "failed"):
        return "failed"
    not_run = case.get("status") in ("notrun", "disabled") or case.get("result") in ("skipped", "suppressed")
    return "skipped" if not_run or case.find("skipped") is not None else "passed"


def count_file(path: pathlib.Path) -> dict:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        counts[outcome(case)] += 1
    return counts


def count_folder(folder: pathlib.Path) -> dict:
    files = {path.stem: count_file(path) for path in sorted(folder.glob("*.xml")) if path.stem != "ctest"}
    programs = folder / "ctest.xml"
    if programs.exists():
        for case in ElementTree.parse(programs).getroot().iter("testcase"):
            name, result = case.get("name"), outcome(case)
            if name not in files:
                files[name] = {"passed": 0, "failed": 0, "skipped": 0, result: 1}
            elif result == "failed" and files[name]["failed"] == 0:
                files[name]["failed"] = 1
    return {key: sum(counts[key] for counts in files.values()) for key in ("passed", "failed", "skipped")}


def failed_lines(folder: pathlib.Path) -> list:
    lines, programs = [], set()
    for path in sorted(folder.glob("*.xml"), key=lambda path: path.stem == "ctest"):
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if outcome(case) != "failed" or (path.stem == "ctest" and case.get("name") in programs):
                continue
            programs.add(path.stem)
            what = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
            said = "" if what is None or path.stem == "ctest" else what.text or what.get("message") or ""
            name = case.get("name") if path.stem == "ctest" else f'{path.stem} {case.get("classname")}.{case.get("name")}'
            lines.append(f"{name}: {' | '.join(said.split(chr(10))[:8])[:500]}".rstrip(": "))
    return lines


if __name__ == "__main__":
    if sys.argv[1] == "--failed":
        print("\n".join(failed_lines(pathlib.Path(sys.argv[2]))))
    else:
        total = count_folder(pathlib.Path(sys.argv[1]))
        print(total["passed"], total["failed"], total["skipped"])
