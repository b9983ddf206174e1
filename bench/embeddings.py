#!/usr/bin/env python3
"""Texts a second of a server's embeddings beside sentence-transformers, taking turns on the same texts.

    bench/embeddings.py -m FOLDER [-r ROUNDS] [--threads N] [--headrace PROGRAM] [--flags=FLAGS]

FOLDER: a sentence-transformers model. Three loads of made-up texts: 200 of mixed lengths and 200 of one length in one request,
and 50 one after the other. Prints the ratios, the least cosine of both sides' vectors, and appends a row a load to
bench/results/embeddings.jsonl. Needs sentence-transformers (`pip install sentence-transformers`), in an environment of its own.
"""
import argparse
import base64
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import time
import urllib.request

import numpy
import torch
from sentence_transformers import SentenceTransformer

from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEED = 1


def texts_of(words, lengths):
    rng = random.Random(SEED)
    starts = [rng.randrange(len(words) - length) for length in lengths]
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


def loads():
    words = (ROOT / "docs/scheduling.md").read_text().split()
    rng = random.Random(SEED)
    mixed = [int(2 ** rng.uniform(1, 7.2)) for _ in range(200)]
    return {"200 texts of 2 to 147 words": (texts_of(words, mixed), 200), "200 texts of 40 words": (texts_of(words, [40] * 200), 200),
            "one text of 8 words a call": (texts_of(words, [8] * 50), 1)}


def ours(port, texts):
    body = {"input": texts, "encoding_format": "base64", "truncate_prompt_tokens": -1}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/embeddings", json.dumps(body).encode(), {"Content-Type": "application/json"})
    answer = json.loads(urllib.request.urlopen(request).read())
    return [numpy.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in answer["data"]], answer["usage"]["total_tokens"]


def timed(call, texts, together):
    start = time.perf_counter()
    results = [call(texts[i : i + together]) for i in range(0, len(texts), together)]
    return time.perf_counter() - start, results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--flags", default="", help="of the server, in one word: --flags='--dtype bfloat16'")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    peer = SentenceTransformer(options.model, device="cpu")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    with Server(options.headrace, options.model, "--threads", str(options.threads), *options.flags.split()) as server:
        for load, (texts, together) in loads().items():
            mine, theirs = [], []
            for _ in range(options.rounds + 1):
                seconds, answers = timed(lambda some: ours(server.port, some), texts, together)
                mine.append(seconds)
                seconds, vectors = timed(peer.encode, texts, together)
                theirs.append(seconds)
            a = numpy.concatenate([numpy.array(rows) for rows, _ in answers])
            b = numpy.concatenate(vectors)
            cosines = (a * b).sum(1) / numpy.linalg.norm(a, axis=1) / numpy.linalg.norm(b, axis=1)
            ratios = [y / x for x, y in zip(mine[1:], theirs[1:], strict=True)]  # the first round warms both
            row = {"bench": "embeddings", "commit": commit, "date": datetime.date.today().isoformat(), "machine": f"{os.cpu_count()} CPUs",
                   "model": pathlib.Path(options.model).name, "load": load, "flags": options.flags, "threads": options.threads, "tokens": sum(n for _, n in answers),
                   "n": options.rounds, "seconds": statistics.median(mine[1:]), "peer_seconds": statistics.median(theirs[1:]),
                   "ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios), "cosine_min": float(cosines.min()),
                   "peer": f"sentence-transformers, torch {torch.__version__}"}
            row = {name: round(value, 8 if name == "cosine_min" else 3) if isinstance(value, float) else value for name, value in row.items()}
            print(f"{load}: {row['ratio']} times ({row['ratio_min']} to {row['ratio_max']}), cosine at least {row['cosine_min']}", flush=True)
            with open(ROOT / "bench/results/embeddings.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
