#!/usr/bin/env python3
"""What a perfect host and perfect small kernels would reach on a GPU for the 8B shape in bf16, from ceilings measured on it.

    headrace bench ceilings --device cuda -o json > ceilings.jsonl
    python3 bench/roof.py ceilings.jsonl [--attention-tflops 1024:440,4096:589,16384:652]

The model, step by step and without overlap of memory and arithmetic:
  matrix products   of m rows: the library's measured time of a layer, between measured m by straight lines, and of the head;
                    in decode steps no more than the bytes of the weights over the read rate, or the operations over the
                    library's best rate at 1,024 rows and more (which it keeps up); in mixes only below 256 rows
  decode attention  keys and values of every sequence over the read rate
  prompt attention  4 d Hq T^2 / 2 operations a layer over --attention-tflops
  all else          nothing
Requests all there at time 0, first come first served, prompts first, at most `width` sequences at a time.
"""
import argparse
import bisect
import json
import pathlib

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 4096, 32, 8, 128, 128256
LAYER_WEIGHTS = 6144 * 4096 + 4096 * 4096 + 28672 * 4096 + 4096 * 14336
WEIGHT_BYTES = 2 * (LAYERS * LAYER_WEIGHTS + VOCAB * HIDDEN)
KV_BYTES = 2 * LAYERS * KV_HEADS * HEAD_DIM * 2  # of a token
HEAD_ROWS = 256  # rows of logits at a time
PROMPT_ROWS = 16384  # a step's tokens while prompts are computed


class Line:
    """Straight lines through points; beyond the last in proportion, or flat."""

    def __init__(self, points, flat=False):
        self.x, self.y = zip(*sorted(points.items()))
        self.flat = flat

    def __call__(self, x):
        if x >= self.x[-1]:
            return self.y[-1] * (1 if self.flat else x / self.x[-1])
        if x <= self.x[0]:
            return self.y[0]
        i = bisect.bisect_right(self.x, x)
        share = (x - self.x[i - 1]) / (self.x[i] - self.x[i - 1])
        return self.y[i - 1] + share * (self.y[i] - self.y[i - 1])


class Ceilings:
    def __init__(self, path, attention_tflops):
        rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.startswith("{")]
        self.read = next(r["value"] for r in rows if r["ceiling"] == "read") * 1e9
        self.layer = Line(self._products(rows, "layer_bf16"))
        self.head = Line(self._products(rows, "head_bf16"))
        self.attention = Line(attention_tflops, flat=True)
        self.best_rate = max(2 * m * LAYER_WEIGHTS / t for m, t in zip(self.layer.x, self.layer.y) if m >= 1024)

    @staticmethod
    def _products(rows, name):
        return {int(r["of"].split()[1]): r["value"] * 1e-3 for r in rows if r["ceiling"] == name}

    def products(self, rows):
        """Seconds of all layers for so many rows."""
        return LAYERS * self.layer(rows)

    def decode_step(self, sequences, context_tokens, bound_rows=HEAD_ROWS):
        products = self.products(sequences) + self.head(sequences)
        if sequences <= bound_rows:
            products = min(products, max(WEIGHT_BYTES / self.read, sequences * WEIGHT_BYTES / self.best_rate))
        return products + context_tokens * KV_BYTES / self.read

    def prompt_attention(self, tokens):
        return LAYERS * 4 * HEAD_DIM * HEADS * tokens**2 / 2 / (self.attention(tokens) * 1e12)

    def prompt_token(self):
        """Seconds of matrix products for one token of a long prompt."""
        return self.products(PROMPT_ROWS) / PROMPT_ROWS

    def prompt(self, tokens):
        steps = -(-tokens // PROMPT_ROWS)
        return steps * self.products(tokens / steps) + self.prompt_attention(tokens) + self.head(1)


def mix_seconds(ceilings, requests, width):
    prompt_tokens = sum(i for i, _ in requests)
    seconds = ceilings.prompt_token() * prompt_tokens + sum(ceilings.prompt_attention(i) for i, _ in requests)
    seconds += len(requests) / HEAD_ROWS * ceilings.head(HEAD_ROWS)
    waiting = [[i + 1, o - 1] for i, o in reversed(requests) if o > 1]
    running = []
    while waiting or running:
        while waiting and len(running) < width:
            running.append(waiting.pop())
        seconds += ceilings.decode_step(len(running), sum(context for context, _ in running), bound_rows=HEAD_ROWS - 1)
        running = [[context + 1, left - 1] for context, left in running if left > 1]
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ceilings")
    parser.add_argument("--attention-tflops", default="1024:440,4096:589,16384:652",
                        help="of causal prompts by length, as the best peer does them (bench/peers/attention_sdpa.py)")
    args = parser.parse_args()
    rates = {int(n): float(rate) for n, rate in (pair.split(":") for pair in args.attention_tflops.split(","))}
    ceilings = Ceilings(args.ceilings, rates)
    workload = pathlib.Path(__file__).parent / "workloads" / "sharegpt_like.json"
    shared = [tuple(r) for r in json.loads(workload.read_text())["requests"]]
    mixes = {"sharegpt_like": (shared, 1000), "128/128 x 1024": ([(128, 128)] * 1024, 1024),
             "128/2048 x 256": ([(128, 2048)] * 256, 256), "2048/128 x 256": ([(2048, 128)] * 256, 256),
             "500/2000 x 128": ([(500, 2000)] * 128, 128)}
    for name, (requests, width) in mixes.items():
        seconds = mix_seconds(ceilings, requests, width)
        print(json.dumps({"roof": name, "out_tok_s": round(sum(o for _, o in requests) / seconds), "seconds": round(seconds, 2)}))
    for tokens in (1024, 8192, 32768):
        print(json.dumps({"roof": "first token", "input": tokens, "ms": round(ceilings.prompt(tokens) * 1e3, 1)}))
    for batch, context in ((1, 384), (8, 256), (32, 256), (64, 256), (128, 256), (256, 256)):
        step = ceilings.decode_step(batch, batch * context)
        print(json.dumps({"roof": "decode step", "batch": batch, "context": context, "ms": round(step * 1e3, 2)}))


if __name__ == "__main__":
    main()
