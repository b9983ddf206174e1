#!/usr/bin/env python3
"""Shows that the simulation catches faults: tests/mutants/run.py BUILD [--every N] [--first-seeds N...] [-j N] [NAME...]

Each NAME.mutant here puts one fault into a copy of a source file of src/kv or src/sched: what stands under `find:` must be in exactly
one place of these folders, whatever its white space and wherever its file, and what stands under `put:` takes its place (several
pairs may follow; they are of one file). So a mutant survives whatever moves its lines and leaves their words. The copy is compiled as
BUILD compiles the file (alone, or in the copy of a unity source), linked before the libraries of BUILD's mutant_sim, and run, which
must find it: a finding of the simulation, or a signal (a failed CHECK). First the same without a fault: it must pass, and its CPU time
is the yardstick for a standstill, which counts only where the mutant expects one. A line `Expect: TEXT` above the pairs says what must
be in the finding, `Expect: standstill` that the program may never end. --every N takes each N-th mutant (a sample); NAMEs choose
mutants; with several --first-seeds each must be found from each. BUILD must be up to date. --check only looks whether each can be put.
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
    """The mutant has no place, or what it makes does not compile or link."""


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


def sources():
    """Where a fault may be put: name -> text."""
    paths = [path for folder in ("kv", "sched") for path in sorted((ROOT / "src" / folder).glob("*.cc"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths if not path.stem.endswith(("_test", "_fuzz"))}


def edits_of(mutant):
    """[(find, put)]"""
    parts = re.split(r"^(find|put):\n", mutant.read_text(), flags=re.M)
    if len(parts) < 5 or parts[1::2] != ["find", "put"] * (len(parts) // 4):
        raise Broken("has no pairs of find: and put:")
    return list(zip(parts[2::4], parts[4::4]))


def expected_of(mutant):
    found = re.search(r"^Expect: (.+)$", mutant.read_text().split("find:\n")[0], re.M)
    return found.group(1).strip() if found else ""


def plant(mutant, texts):
    """The source with the fault in it: (name, text)."""
    planted = {}
    for find, put in edits_of(mutant):
        words = re.compile(r"\s+".join(map(re.escape, find.split())))
        places = [name for name, text in texts.items() for _ in words.finditer(planted.get(name, text))]
        if len(places) != 1:
            raise Broken(f"stands in {len(places)} places, not in one: {' '.join(find.split())[:80]}")
        planted[places[0]] = words.sub(lambda _: put.strip(), planted.get(places[0], texts[places[0]]))
    if len(planted) != 1:
        raise Broken(f"is of several files: {', '.join(planted)}")
    return next(iter(planted.items()))


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
        self.sources = sources()
        self.cpu_seconds_max = 3600.0

    def measure(self):
        """The same as for a mutant, without a fault: one outcome a first seed."""
        with tempfile.TemporaryDirectory() as folder:
            outcomes = self.run(*next(iter(self.sources.items())), pathlib.Path(folder))
        self.cpu_seconds_max = STANDSTILL * max(outcome.seconds for outcome in outcomes)
        return outcomes

    def try_mutant(self, mutant):
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcomes = self.run(*plant(mutant, self.sources), pathlib.Path(folder))
            except Broken as broken:
                return [Outcome("broken", str(broken))]
        return [judged(outcome, expected_of(mutant)) for outcome in outcomes]

    def run(self, source, text, folder):
        copy = folder / pathlib.Path(source).name
        copy.write_text(text)
        program = self.build.make(source, copy, folder)
        return [simulate(program, self.steps, seed, self.cpu_seconds_max) for seed in self.first_seeds]


def check(names):
    broken = 0
    for name in names:
        try:
            plant(name, sources())
        except Broken as error:
            broken += 1
            print(f"{name.stem}: {error}")
    return 1 if broken else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--first-seeds", type=int, nargs="+", default=[1])
    parser.add_argument("-j", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    names = sorted(HERE.glob("*.mutant"))
    if args.names:
        names = [name for name in names if name.stem in args.names]
    if args.check:
        return check(names)
    names = names[:: args.every]
    mutants = Mutants(Build(args.build), args.steps, args.first_seeds)
    for seed, outcome in zip(args.first_seeds, mutants.measure()):
        print(f"without a fault, from seed {seed}: {outcome}, {outcome.seconds:.1f} s of CPU", flush=True)
        if outcome.kind != "survived":
            return 1
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for name, outcomes in zip(names, pool.map(mutants.try_mutant, names)):
            counts.update(outcome.kind for outcome in outcomes)
            for outcome in outcomes:
                print(f"{name.stem}: {outcome}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 0 if set(counts) <= set(CAUGHT) else 1


if __name__ == "__main__":
    sys.exit(main())
