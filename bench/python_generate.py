#!/usr/bin/env python3
"""`headrace bench throughput` through the Python package: the same work, by LLM.generate(), whose answers are read as text. With

    bench/pairs.py build/headrace bench/python_generate.py -n 8 -- bench throughput -m MODEL --num-prompts 10000 --input-len 16 --output-len 16 -r 1 -o json

both take turns. Takes `bench throughput` with -m, --num-prompts, --input-len, --output-len, -r and -t, and prints the line of JSON that pairs.py
reads. Run it with a Python that has the package (`pip install .`), which HEADRACE_PYTHON may name."""

import argparse
import json
import os
import random
import statistics
import sys
import time

if (python := os.environ.get("HEADRACE_PYTHON")) and python != sys.executable:
    os.execv(python, [python, *sys.argv])

from headrace import LLM, SamplingParams  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs=2)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--num-prompts", type=int, default=64)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("-r", "--repetitions", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    # As much context as the work takes, as `bench throughput` has it.
    llm = LLM(options.model, max_model_len=options.input_len + options.output_len, threads=options.threads)
    vocabulary = llm._text_model().vocabulary
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=options.output_len)
    rates = []
    for run in range(options.repetitions + 1):  # the first is not counted
        chance = random.Random(run)
        prompts = [[chance.randrange(vocabulary) for _ in range(options.input_len)] for _ in range(options.num_prompts)]
        begun = time.perf_counter()
        outputs = llm.generate(prompts, params)
        seconds = time.perf_counter() - begun
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        assert tokens == options.num_prompts * options.output_len, tokens
        if run > 0:
            rates.append(tokens / seconds)
    print(json.dumps({"requests": options.num_prompts, "output_tokens_per_s": {"median": statistics.median(rates), "min": min(rates), "max": max(rates)}}))


main()
