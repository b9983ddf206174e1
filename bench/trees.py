#!/usr/bin/env python3
"""Tokens a verification and speed of chains and trees (--spec-tree-width), in turns: of n-grams, or of a draft model or heads.

    bench/trees.py [-m MODEL] [-n 5] [-t THREADS] [--width 3] [--tokens 5] [--headrace PROGRAM] [--texts TEXT...]
                   [--draft PATH] [--flags "FLAG..."] [--whatever-they-cost [--answer 48]]

Two servers, one that proposes chains and one that proposes trees, answer the prompts of workloads/proposals.json greedily, one request
at a time, the one that goes first in turns; answers must be the same (both have --batch-invariant). Printed of each prompt: tokens a
verification of both (1 + accepted / verifications, by the metrics), tokens proposed in one, and the mean of the pairs' ratios of speed
with its 95 % interval. Of texts instead: tokens that a step brings where rows cost nothing, the second half of a text being answered
behind its first (ninja -C build ngram_trees_bench). Of a draft whatever rows and passes cost: tokens a verification of chains and trees of
several sizes over all prompts (ninja -C build draft_trees_bench; a draft that is no file of its own: bench/first_layers.py). Appends a row a prompt to bench/results/trees.jsonl. Standard library only.
"""
import argparse
import json
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import compare  # noqa: E402
import pairs  # noqa: E402
import starts  # noqa: E402

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
COUNTS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


class Server:
    def __init__(self, options, flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [options.headrace, "serve", "-m", str(options.model), "--port", str(port), "-t", str(options.threads), "--batch-invariant",
             *(["--model-draft", str(options.draft)] if options.draft else ["--spec-method", "ngram"]), "--num-speculative-tokens",
             str(options.tokens), "--log-level", "warning", *options.flags.split(), *flags])
        while True:
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=5).status == 200:
                    return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit("trees.py: the server ended")
                time.sleep(0.1)

    def counts(self):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return [float(re.search(rf"^vllm:spec_decode_{name}_total\S* (\S+)$", text, re.M)[1]) for name in COUNTS]

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request).read())

    def answer(self, work):
        """The text, how many tokens it has and at how many a second, and what was counted."""
        body = {"prompt": work["prompt"], "max_tokens": work["max_tokens"], "temperature": 0}
        before, start = self.counts(), time.perf_counter()
        answer = self.post("/v1/completions", body)
        seconds = time.perf_counter() - start
        time.sleep(0.3)  # until the last step is counted
        tokens = answer["usage"]["completion_tokens"]
        return (answer["choices"][0]["text"], tokens, tokens / seconds,
                [after - each for after, each in zip(self.counts(), before)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=pathlib.Path, default=starts.CACHE / "headrace/models" / MODEL)
    parser.add_argument("-n", "--pairs", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=5)
    parser.add_argument("--draft", type=pathlib.Path)
    parser.add_argument("--flags", default="", help="of both servers")
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--bench", default=str(ROOT / "build/src/sched/ngram_trees_bench"))
    parser.add_argument("--texts", nargs="+", type=pathlib.Path, default=[])
    parser.add_argument("--whatever-they-cost", action="store_true")
    parser.add_argument("--answer", type=int, default=48, help="with it: most tokens of an answer")
    options = parser.parse_args()
    if options.whatever_they_cost:
        return force(options)
    servers = [Server(options, []), Server(options, ["--spec-tree-width", str(options.width)])]
    try:
        for text in options.texts:
            replay(options, servers[0], text)
        for work in [] if options.texts else json.loads((ROOT / "bench/workloads/proposals.json").read_text()):
            measure(options, servers, work)
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait()


def keep(row):
    row |= {**compare.origin(), "command": " ".join(["bench/trees.py", *sys.argv[1:]])}
    with open(ROOT / "bench/results/trees.jsonl", "a") as rows:
        rows.write(json.dumps(row) + "\n")


def force(options):
    words = [ROOT / "build/src/stack/draft_trees_bench", options.model, options.draft, "--depth", str(options.tokens), "--answer", str(options.answer)]
    prompts = (ROOT / "bench/workloads/proposals.json").read_text()
    done = subprocess.run(words, input=prompts, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        figure = json.loads(line)
        print(f"width {figure['width']} of {figure['tokens_max']:2}: {figure['tokens_a_verification']:.3f} tokens a verification, "
              f"{figure['proposed_a_verification']:5.2f} proposed", flush=True)
        keep({"bench": "draft_trees", "model": options.model.name, "draft": options.draft.name, "answer": options.answer, **figure})


def replay(options, server, text):
    ids = server.post("/tokenize", {"prompt": text.read_text()})["tokens"]
    done = subprocess.run([options.bench, "--depth", str(options.tokens)], input=" ".join(map(str, ids)), capture_output=True, text=True,
                          check=True)
    for line in done.stdout.splitlines():
        figure = json.loads(line)
        print(f"{text.name:24} {len(ids)} tokens, width {figure['width']} of {figure['tokens_max']:2}: {figure['tokens_a_step']:.3f} "
              f"tokens a step, {figure['proposed_a_step']:5.2f} proposed", flush=True)
        keep({"bench": "ngram_trees", "text": text.name, "tokens": len(ids), "model": options.model.name, **figure})


def measure(options, servers, work):
    speeds, counts = ([], []), [[0.0] * len(COUNTS), [0.0] * len(COUNTS)]
    for server in servers:
        server.answer(work)  # the prompt is cached, steps have a cost
    for pair in range(options.pairs):
        texts = {}
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            texts[side], tokens, speed, counted = servers[side].answer(work)
            speeds[side].append(speed)
            counts[side] = [a + b for a, b in zip(counts[side], counted)]
        if texts[0] != texts[1]:
            sys.exit(f"trees.py: {work['name']}: other tokens with trees")
    mean, low, high = pairs.ratio(*speeds)
    row = {"bench": "trees", "work": work["name"], "model": options.model.name, "width": options.width, "tokens_max": options.tokens}
    if options.draft:
        row |= {"draft": options.draft.name, "flags": options.flags}
    for name, (drafts, proposed, accepted) in zip(("chain", "tree"), counts):
        row[f"{name}_tokens_a_verification"] = round(1 + accepted / max(drafts, 1), 3)
        row[f"{name}_proposed_a_verification"] = round(proposed / max(drafts, 1), 2)
        row[f"{name}_verifications"] = drafts / options.pairs
    print(f"{work['name']:12} {tokens:4} tokens, chain {row['chain_tokens_a_verification']:.2f} of {row['chain_proposed_a_verification']:.1f} "
          f"({row['chain_verifications']:.0f}), tree {row['tree_tokens_a_verification']:.2f} of {row['tree_proposed_a_verification']:.1f} "
          f"({row['tree_verifications']:.0f}), speed {mean:.3f} ({low:.3f} to {high:.3f})", flush=True)
    row["tokens"] = tokens
    keep(row | {"ratio": round(mean, 4), "low": round(low, 4), "high": round(high, 4), "n": options.pairs})


if __name__ == "__main__":
    main()
