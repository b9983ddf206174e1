#!/usr/bin/env python3
"""Shows that the simulation catches faults: tests/mutants/run.py BUILD [--every N] [--first-seeds N...] [-j N] [NAME...]

Each patch here puts one fault into a copy of a source file of src/kv or src/sched. The copy is compiled as BUILD compiles the file
(alone, or in the copy of a unity source), linked before the libraries of BUILD's mutant_sim, and run, which must find it: a finding
of the simulation, or a signal (a failed CHECK). First the same without a fault: it must pass, and its CPU time is the yardstick for
a standstill, which counts only where the patch expects one. A line `Expect: TEXT` above a patch's diff says what must be in the
finding, `Expect: standstill` that the program may never end. --every N takes each N-th patch (a sample); NAMEs choose patches;
with several --first-seeds each patch must be found from each. BUILD must be up to date.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = 1000000
STANDSTILL = 10  # times the CPU seconds of a run without a fault
CAUGHT = ("finding", "signal", "expected standstill")


class Broken(Exception):
    """The patch does not apply, or what it makes does not compile or link."""


@dataclasses.dataclass
class Outcome:
    kind: str  # one of CAUGHT, or what is wrong
    said: str
    seconds: float = 0  # of CPU

    def __str__(self):
        return f"{self.kind}: {self.said}"


def must(words, what, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise Broken(f"does not {what}: {done.stdout.strip()[:300]}")
    return done.stdout


def source_of(patch):
    return re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M).group(1)


def expected_of(patch):
    found = re.search(r"^Expect: (.+)$", patch.read_text().split("\n--- ")[0], re.M)
    return found.group(1).strip() if found else ""


class Build:
    """How a build folder compiles each source and links mutant_sim."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        rows = json.loads(must(["ninja", "-C", str(self.folder), "-t", "compdb"], "list its commands"))
        self.compiled = {}  # source -> (file that is compiled, command)
        for row in rows:
            file = (self.folder / row["file"]).resolve()
            if " -c " not in row["command"]:
                continue
            for source in self.sources_of(file):
                if source.is_relative_to(ROOT):
                    self.compiled[str(source.relative_to(ROOT))] = (file, row["command"])
        self.link = next(row["command"] for row in rows if row["command"] and row["output"].endswith("mutant_sim"))

    @staticmethod
    def sources_of(file):
        """The file itself, or what a unity source includes."""
        if file.parent.name != "Unity" or not file.exists():
            return [file]
        included = re.findall(r'^#include "(.+)"$', file.read_text(), re.M)
        return [(file.parent / each).resolve() for each in included]

    def make(self, source, copy, folder):
        """mutant_sim with `copy` in place of `source`, made in `folder`."""
        file, command = self.compiled[source]
        compiled = copy
        if file != ROOT / source:
            compiled = folder / file.name
            compiled.write_text(re.sub(r'^#include "(.+)"$',
                                       lambda m: f'#include "{self.included(file, m[1], source, copy)}"',
                                       file.read_text(), flags=re.M))
        words = shlex.split(command)
        words[words.index("-o") + 1] = str(folder / "mutant.o")
        words[words.index("-c") + 1] = str(compiled)
        words = [w for i, w in enumerate(words) if w not in ("-MD", "-MT", "-MF") and words[i - 1] not in ("-MT", "-MF")]
        must(words + ["-w", "-O1"], "compile", cwd=self.folder)
        program = folder / "mutant_sim"
        must(re.sub(r"-o \S*mutant_sim", f"{folder}/mutant.o -o {program}", self.link), "link", cwd=self.folder, shell=True)
        return program

    @staticmethod
    def included(unity, name, source, copy):
        path = (unity.parent / name).resolve()
        return copy if path == ROOT / source else path


def simulate(program, steps, first_seed, cpu_seconds):
    """Runs it for so much CPU time at most, which a busy machine does not shorten."""
    limit = max(1, round(cpu_seconds))
    child = subprocess.Popen([str(program), str(steps), str(first_seed)], cwd=ROOT, text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)))
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    said = next((line for line in printed.splitlines() if line.strip()), "")[:150]
    if child.returncode == -signal.SIGXCPU:
        return Outcome("standstill", f"no end in {limit} s", seconds)
    if child.returncode < 0:
        return Outcome("signal", f"{signal.Signals(-child.returncode).name}: {said}", seconds)
    if child.returncode == 1 and said.startswith("seed "):
        return Outcome("finding", said, seconds)
    return Outcome("survived" if child.returncode == 0 else "odd", f"exit status {child.returncode}: {said}", seconds)


def judged(outcome, expected):
    """What was expected counts, and nothing else where something was."""
    if outcome.kind == "standstill" and expected == "standstill":
        return dataclasses.replace(outcome, kind="expected standstill")
    if outcome.kind in ("finding", "signal") and expected not in ("", "standstill") and expected not in outcome.said:
        return dataclasses.replace(outcome, kind="another finding", said=f"{outcome.said} (expected: {expected})")
    return outcome


class Mutants:
    def __init__(self, build, steps, first_seeds):
        self.build, self.steps, self.first_seeds = build, steps, first_seeds
        self.cpu_seconds_max = 3600.0

    def measure(self, source):
        """The same as for a mutant, without a fault: one outcome a first seed."""
        with tempfile.TemporaryDirectory() as folder:
            outcomes = self.run(source, None, pathlib.Path(folder))
        self.cpu_seconds_max = STANDSTILL * max(outcome.seconds for outcome in outcomes)
        return outcomes

    def try_patch(self, patch):
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcomes = self.run(source_of(patch), patch, pathlib.Path(folder))
            except Broken as broken:
                return [Outcome("broken", str(broken))]
        return [judged(outcome, expected_of(patch)) for outcome in outcomes]

    def run(self, source, patch, folder):
        copy = folder / pathlib.Path(source).name
        copy.write_text((ROOT / source).read_text())
        if patch is not None:
            must(["patch", "-s", "-F0", str(copy), str(patch)], "apply")
        program = self.build.make(source, copy, folder)
        return [simulate(program, self.steps, seed, self.cpu_seconds_max) for seed in self.first_seeds]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--first-seeds", type=int, nargs="+", default=[1])
    parser.add_argument("-j", type=int, default=2)
    args = parser.parse_args()
    patches = sorted(HERE.glob("*.patch"))
    if args.names:
        patches = [p for p in patches if p.stem in args.names]
    patches = patches[:: args.every]
    mutants = Mutants(Build(args.build), args.steps, args.first_seeds)
    for seed, outcome in zip(args.first_seeds, mutants.measure(source_of(patches[0]))):
        print(f"without a fault, from seed {seed}: {outcome}, {outcome.seconds:.1f} s of CPU", flush=True)
        if outcome.kind != "survived":
            return 1
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for patch, outcomes in zip(patches, pool.map(mutants.try_patch, patches)):
            counts.update(outcome.kind for outcome in outcomes)
            for outcome in outcomes:
                print(f"{patch.stem}: {outcome}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 0 if set(counts) <= set(CAUGHT) else 1


if __name__ == "__main__":
    sys.exit(main())
