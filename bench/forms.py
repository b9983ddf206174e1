#!/usr/bin/env python3
"""What forms of answers cost and gain: throughput with and without one, and decodes with and without jump-ahead.

    bench/forms.py throughput [-m MODEL] [--streams 64] [--tokens 256] [-n 7] [--headrace PROGRAM] [-- FLAGS OF SERVE]
    bench/forms.py jump       [-m MODEL] [--tokens 400] [-n 7] [--unnamed] [--headrace PROGRAM] [-- FLAGS OF SERVE]

throughput: one server, so many streams at once; each pair has all streams answer with a JSON schema and without, the one that goes
first in turns. An answer has all its tokens: the schema's list is longer. jump: two servers, of which one has --no-jump-ahead, answer
greedily with a schema of long keys in turns, and must give the same tokens. Printed: both medians in tokens a second and the mean of
the pairs' ratios with its 95 % interval. Appends a row to bench/results/forms.jsonl. Standard library only.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import compare  # noqa: E402
import pairs  # noqa: E402
import starts  # noqa: E402
from server import Server  # noqa: E402

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "Write the orders of a small shop as JSON: customers, addresses, articles, prices.\n"


def schema_of(keys, **lists):
    return {"type": "array", "items": {"type": "object", "properties": {key: {"type": kind} for key, kind in keys.items()},
                                       "required": list(keys)}, **lists}


ENDLESS = schema_of({"customer": "string", "article": "string", "count": "integer", "paid": "boolean"}, minItems=500)
LONG_KEYS = schema_of({"customer_identification_number": "integer", "number_of_ordered_articles": "integer",
                       "delivery_address_is_confirmed": "boolean", "payment_was_received_in_advance": "boolean",
                       "estimated_delivery_time_in_days": "integer"}, minItems=40)  # fmt: skip


# As it is in an application: the model is told what it is to write.
EXAMPLE = json.dumps([{key: {"integer": 7, "boolean": True}[kind["type"]] for key, kind in LONG_KEYS["items"]["properties"].items()}], indent=1)
NAMED = f"{PROMPT}For example:\n{EXAMPLE}\nTwenty orders:\n"


def ask(port, tokens, **fields):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True, **fields}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    if response.status != 200:
        raise SystemExit(f"forms.py: {answer}")
    if answer["usage"]["completion_tokens"] != tokens:
        raise SystemExit(f"forms.py: {answer['usage']['completion_tokens']} tokens, not {tokens}: {answer['choices'][0]}")
    return answer["choices"][0]


def round_of(port, options, form):
    """Tokens a second of all streams."""
    fields = {"structured_outputs": {"json": ENDLESS}} if form else {}
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(options.streams) as pool:
        asked = [pool.submit(ask, port, options.tokens, temperature=0.8, seed=seed, **fields) for seed in range(options.streams)]
        for each in asked:
            each.result()
    return options.streams * options.tokens / (time.perf_counter() - begin)


def throughput(options):
    with Server(options.headrace, str(options.model), "--max-num-seqs", str(options.streams), *options.flags) as server:
        for form in (False, True):
            round_of(server.port, options, form)
        speeds = ([], [])
        for pair in range(options.pairs):
            for form in (0, 1) if pair % 2 == 0 else (1, 0):
                speeds[form].append(round_of(server.port, options, form))
    return speeds, {"streams": options.streams}


def jump(options):
    speeds = ([], [])
    fields = {"prompt": PROMPT if options.unnamed else NAMED, "temperature": 0, "structured_outputs": {"json": LONG_KEYS}}
    with Server(options.headrace, str(options.model), "--batch-invariant", "--no-jump-ahead", *options.flags) as without, \
            Server(options.headrace, str(options.model), "--batch-invariant", *options.flags) as jumps:
        servers = (without, jumps)
        for server in servers:
            ask(server.port, options.tokens, **fields)
        for pair in range(options.pairs):
            tokens = {}
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                begin = time.perf_counter()
                tokens[side] = ask(servers[side].port, options.tokens, **fields)["token_ids"]
                speeds[side].append(options.tokens / (time.perf_counter() - begin))
            if tokens[0] != tokens[1]:
                raise SystemExit("forms.py: other tokens with jump-ahead")
    return speeds, {"streams": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("throughput", "jump"))
    parser.add_argument("-m", "--model", default=starts.CACHE / "headrace/models" / MODEL, type=pathlib.Path)
    parser.add_argument("-n", "--pairs", type=int, default=7)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--unnamed", action="store_true", help="jump: the prompt says nothing of the keys, which a small model then spells in odd ways")
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:cut], argparse.Namespace(flags=sys.argv[cut + 1 :]))
    options.tokens = options.tokens or (256 if options.what == "throughput" else 400)
    (free, formed), more = (throughput if options.what == "throughput" else jump)(options)
    mean, low, high = pairs.ratio(free, formed)
    print(f"{options.what}: {statistics.median(free):.1f} without, {statistics.median(formed):.1f} with, tok/s; "
          f"{mean:.3f} ({low:.3f} to {high:.3f})")
    row = {"bench": f"forms_{options.what}", "model": options.model.name, "tokens": options.tokens, **more, "unit": "tok/s",
           "without_median": statistics.median(free), "with_median": statistics.median(formed), "ratio": round(mean, 4),
           "low": round(low, 4), "high": round(high, 4), "n": options.pairs, **compare.origin(),
           "command": " ".join(["bench/forms.py", *sys.argv[1:]])}
    with open(ROOT / "bench/results/forms.jsonl", "a") as rows:
        rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
