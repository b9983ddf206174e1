"""Counts the test cases in a folder of JUnit XML files: prints "passed failed skipped", or with --failed
the names of those that failed, a line each with what was said first.

ctest writes one case per program, GoogleTest and pytest one per test. A program that wrote a file
of its own is counted by that file; one that failed without saying why there (a crash, a leak found
at exit, a time-out) counts as one failure. What failed in NAME.xml and passed in second-NAME.xml has
passed.
"""

import collections
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


def cases(path: pathlib.Path) -> list:
    return list(ElementTree.parse(path).getroot().iter("testcase"))


def files(folder: pathlib.Path) -> list:
    """The programs' own, then that of ctest."""
    found = [path for path in folder.glob("*.xml") if not path.stem.startswith("second-")]
    return sorted(found, key=lambda path: (path.stem == "ctest", path.stem))


def outcomes(path: pathlib.Path) -> list:
    """(case, outcome) of each."""
    again = path.with_name(f"second-{path.name}")
    passed = {(case.get("classname"), case.get("name")) for case in (cases(again) if again.exists() else [])
              if outcome(case) == "passed"}
    return [(case, "passed" if (case.get("classname"), case.get("name")) in passed else outcome(case))
            for case in cases(path)]


def count_folder(folder: pathlib.Path) -> dict:
    counts, failed_programs = collections.Counter(), set()
    for path in files(folder):
        for case, result in outcomes(path):
            if path.stem != "ctest":
                failed_programs |= {path.stem} if result == "failed" else set()
            elif not (folder / f'{case.get("name")}.xml').exists():
                pass  # the program as one test
            elif result != "failed" or case.get("name") in failed_programs:
                continue
            counts[result] += 1
    return counts


def failed_lines(folder: pathlib.Path) -> list:
    lines, programs = [], set()
    for path in files(folder):
        for case, result in outcomes(path):
            if result != "failed" or (path.stem == "ctest" and case.get("name") in programs):
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
