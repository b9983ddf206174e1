#!/usr/bin/env python3
"""Shows that the simulation catches faults: tests/mutants/run.py BUILD [--every N] [-j N] [NAME...]

Each patch here puts one fault into a copy of a source file of src/kv or src/sched. The copy is compiled as BUILD compiles the
file, linked before the libraries of BUILD's mutant_sim, and run for 1e5 steps, which must find it: an invariant, a wrong token, a
failed CHECK, or a standstill. --every N takes each N-th patch (a sample); NAMEs choose patches. BUILD must be up to date.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = 100000
SECONDS_MAX = 120  # a standstill; a run without faults takes a second or two


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, *arguments], check=True, capture_output=True, text=True).stdout


def source_of(patch):
    return re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M).group(1)


class Mutants:
    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        database = json.loads(ninja(build, "-t", "compdb"))
        self.compile = {str((self.build / row["file"]).resolve().relative_to(ROOT)): row["command"]
                        for row in database
                        if row["file"].endswith(".cc") and ROOT in (self.build / row["file"]).resolve().parents}
        self.link = next(row["command"] for row in database
                         if row["output"].endswith("/mutant_sim") or row["output"] == "mutant_sim")

    def run(self, patch):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            source = source_of(patch)
            mutant = folder / pathlib.Path(source).name
            mutant.write_text((ROOT / source).read_text())
            done = subprocess.run(["patch", "-s", "-F0", str(mutant), str(patch)], capture_output=True, text=True)
            if done.returncode != 0:
                return "does not apply: " + done.stdout.strip().replace("\n", "; ")
            words = shlex.split(self.compile[source])
            words[words.index("-o") + 1] = str(folder / "mutant.o")
            words[words.index("-c") + 1] = str(mutant)
            words = [w for i, w in enumerate(words) if w not in ("-MD", "-MT", "-MF") and words[i - 1] not in ("-MT", "-MF")]
            done = subprocess.run(words + ["-w", "-O1"], cwd=self.build, capture_output=True, text=True)
            if done.returncode != 0:
                return "does not compile: " + done.stderr[:300]
            program = folder / "mutant_sim"
            command = re.sub(r"-o \S*mutant_sim", f"{folder}/mutant.o -o {program}", self.link)
            done = subprocess.run(command, cwd=self.build, shell=True, capture_output=True, text=True)
            if done.returncode != 0:
                return "does not link: " + done.stderr[:300]
            try:
                done = subprocess.run([str(program), str(STEPS)], cwd=ROOT, timeout=SECONDS_MAX, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
            except subprocess.TimeoutExpired:
                return f"caught: stood still for {SECONDS_MAX} s"
            said = next((line for line in done.stdout.splitlines() if line.strip()), f"exit status {done.returncode}")
            return f"caught: {said[:150]}" if done.returncode != 0 else f"SURVIVED: {said}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("-j", type=int, default=2)
    args = parser.parse_args()
    patches = sorted(HERE.glob("*.patch"))
    if args.names:
        patches = [p for p in patches if p.stem in args.names]
    patches = patches[:: args.every]
    mutants = Mutants(args.build)
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for patch, said in zip(patches, pool.map(mutants.run, patches)):
            counts[said.split(":")[0]] += 1
            print(f"{patch.stem}: {said}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 0 if counts["caught"] == len(patches) else 1


if __name__ == "__main__":
    sys.exit(main())
