#!/usr/bin/env python3
"""Shows that tests catch faults: tests/mutants/run.py BUILD [--every N] [--first-seeds N...] [-j N] [NAME...]

Each NAME.mutant here puts one fault into a copy of a file of the folders of its judge, which is the simulation or what a line `Judge:
NAME` above the pairs says: what stands under `find:` must be in exactly one place of these folders, whatever its white space and
wherever its file, and what stands under `put:` takes its place (several pairs may follow; they are of one file). So a mutant survives
whatever moves its lines and leaves their words. The copy is compiled as BUILD compiles the file (alone, or in the copy of a unity
source; of a header, all files of its folder that include it), linked before the libraries of the judge's program, and run, which must
find it: a finding, or a signal (a failed CHECK). First each judge without a fault: it must pass, and its CPU time is the yardstick for a
standstill, which counts only where the mutant expects one. A line `Expect: TEXT` above the pairs says what must be in the finding,
`Expect: standstill` that the program may never end. --every N takes each N-th mutant (a sample); NAMEs choose mutants; with several
--first-seeds each must be found by the simulation from each. BUILD must be up to date. --check only looks whether each can be put.
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


@dataclasses.dataclass(frozen=True)
class Judge:
    """A program that must find the faults put into files of some folders of src/."""
    folders: tuple
    program: str
    tests: str = ""  # those of a test program that judge; empty: a simulation, which takes steps and a first seed

    def sources(self):
        """Where a fault may be put: name -> text."""
        paths = [path for folder in self.folders for path in sorted((ROOT / "src" / folder).iterdir())
                 if path.suffix in ((".cc", ".h", ".inc") if self.tests else (".cc",))]
        return {str(path.relative_to(ROOT)): path.read_text() for path in paths if not path.stem.endswith(("_test", "_fuzz"))}


JUDGES = {
    "simulation": Judge(("kv", "sched"), "mutant_sim"),
    "crowd": Judge(("kv", "sched"), "sim_test", "*InvariantInACrowd"),
    "attention": Judge(("ops/attention",), "ops_test", "Attention.ANan*:AttentionPanels.ANan*"),
    "engine": Judge(("engine",), "engine_test", "Verification*:*NullDevice*:DraftTree*"),
    "drafts": Judge(("engine",), "tiny_engine_test", "DraftTrees.AModelThatIsItsOwnDraft*"),
    "route": Judge(("route",), "route_test", "RouteSimulation*:StreamJournal*:RequestAttempts*:Membership*:RoutePolicy*"),
    "leases": Judge(("server",), "route_test", "RouteSimulation*"),
}


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


def edits_of(mutant):
    """[(find, put)]"""
    parts = re.split(r"^(find|put):\n", mutant.read_text(), flags=re.M)
    if len(parts) < 5 or parts[1::2] != ["find", "put"] * (len(parts) // 4):
        raise Broken("has no pairs of find: and put:")
    return list(zip(parts[2::4], parts[4::4]))


def said_of(mutant, word):
    """What a line `WORD: TEXT` above the pairs says; empty: there is none."""
    found = re.search(rf"^{word}: (.+)$", mutant.read_text().split("find:\n")[0], re.M)
    return found.group(1).strip() if found else ""


def judge_of(mutant):
    name = said_of(mutant, "Judge") or "simulation"
    if name not in JUDGES:
        raise Broken(f"has a judge {name}, which is none of {', '.join(JUDGES)}")
    return JUDGES[name]


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
    """How a build folder compiles each source and links the judges' programs."""

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
        self.links = {pathlib.Path(row["output"]).name: row["command"] for row in rows if row["command"]}

    @staticmethod
    def sources_of(file):
        """The file itself, or what a unity source includes."""
        if file.parent.name != "Unity" or not file.exists():
            return [file]
        included = re.findall(r'^#include "(.+)"$', file.read_text(), re.M)
        return [(file.parent / each).resolve() for each in included]

    def make(self, judge, source, copy, folder):
        """The judge's program with `copy` in place of `source`, made in `folder`."""
        objects = self.compile_header(source, copy, folder) if copy.suffix != ".cc" else self.compile_source(source, copy, folder)
        program = folder / judge.program
        link = re.sub(rf"-o \S*{judge.program}", f"{' '.join(map(str, objects.values()))} -o {program}", self.links[judge.program])
        for replaced in objects:  # one that the program has by itself, and in no library
            link = link.replace(f" {replaced} ", " ")
        must(link, "link", cwd=self.folder, shell=True)
        return program

    def compile_source(self, source, copy, folder):
        """{object of the build: the one with the copy}"""
        file, command = self.compiled[source]
        compiled = copy
        if file != ROOT / source:
            compiled = folder / file.name
            compiled.write_text(re.sub(r'^#include "(.+)"$',
                                       lambda m: f'#include "{self.included(file, m[1], source, copy)}"',
                                       file.read_text(), flags=re.M))
        return self.compile(command, compiled, folder / "mutant.o")

    def compile_header(self, source, copy, folder):
        """{object of the build: the one with the copy} of the files beside the header that include it."""
        included = pathlib.Path(*pathlib.Path(source).parts[1:])
        planted = folder / "include" / included
        planted.parent.mkdir(parents=True)
        copy.rename(planted)
        objects = {}
        beside = {compiled for user, compiled in self.compiled.items() if pathlib.Path(user).parent == pathlib.Path(source).parent}
        for file, command in sorted(beside):
            with_header = re.sub(r" -c ", f" -iquote {folder / 'include'} -c ", command)
            if str(planted) in must(self.words_of(with_header, file, "-M"), "list its headers", cwd=self.folder):
                objects.update(self.compile(with_header, file, folder / f"mutant_{len(objects)}.o"))
        if not objects:
            raise Broken("is in a header that no file beside it includes")
        return objects

    def compile(self, command, file, to):
        words = shlex.split(command)
        must(self.words_of(command, file, "-c", "-w", "-O1", "-o", str(to)), "compile", cwd=self.folder)
        return {words[words.index("-o") + 1]: to}

    @staticmethod
    def words_of(command, file, *last):
        """The command, of `file`, without what it makes."""
        words = shlex.split(command)
        words = words[:words.index("-o")] + words[words.index("-o") + 2:]
        words[words.index("-c") + 1] = str(file)
        words.remove("-c")
        return [w for i, w in enumerate(words) if w not in ("-MD", "-MT", "-MF") and words[i - 1] not in ("-MT", "-MF")] + list(last)

    @staticmethod
    def included(unity, name, source, copy):
        path = (unity.parent / name).resolve()
        return copy if path == ROOT / source else path


def watch(words, cpu_seconds):
    """Runs it for so much CPU time at most, which a busy machine does not shorten."""
    limit = max(1, round(cpu_seconds))
    child = subprocess.Popen(words, cwd=ROOT, text=True, errors="replace",
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)))
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    lines = [line for line in printed.splitlines() if line.strip()]
    said = next((line for line in lines if line.startswith("[  FAILED  ]")), lines[0] if lines else "")[:150]
    if child.returncode == -signal.SIGXCPU:
        return Outcome("standstill", f"no end in {limit} s", seconds)
    if child.returncode < 0:
        return Outcome("signal", f"{signal.Signals(-child.returncode).name}: {said}", seconds)
    if child.returncode == 1 and said.startswith(("seed ", "[  FAILED  ]")):
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
        self.cpu_seconds_max = collections.defaultdict(lambda: 3600.0)  # of a judge's program

    def measure(self, judge):
        """The same as for a mutant, without a fault: one outcome a run."""
        source, text = next(each for each in judge.sources().items() if each[0] in self.build.compiled)
        with tempfile.TemporaryDirectory() as folder:
            outcomes = self.run(judge, source, text, pathlib.Path(folder))
        self.cpu_seconds_max[judge] = STANDSTILL * max(outcome.seconds for outcome in outcomes)
        return outcomes

    def try_mutant(self, mutant):
        with tempfile.TemporaryDirectory() as folder:
            try:
                judge = judge_of(mutant)
                outcomes = self.run(judge, *plant(mutant, judge.sources()), pathlib.Path(folder))
            except Broken as broken:
                return [Outcome("broken", str(broken))]
        return [judged(outcome, said_of(mutant, "Expect")) for outcome in outcomes]

    def run(self, judge, source, text, folder):
        copy = folder / pathlib.Path(source).name
        copy.write_text(text)
        program = str(self.build.make(judge, source, copy, folder))
        runs = [[program, f"--gtest_filter={judge.tests}"]] if judge.tests else [
            [program, str(self.steps), str(seed)] for seed in self.first_seeds]
        return [watch(words, self.cpu_seconds_max[judge]) for words in runs]


def check(names):
    broken = 0
    for name in names:
        try:
            plant(name, judge_of(name).sources())
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
    for judge in dict.fromkeys(map(judge_of, names)):
        for outcome in mutants.measure(judge):
            print(f"{judge.program} without a fault: {outcome}, {outcome.seconds:.1f} s of CPU", flush=True)
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
