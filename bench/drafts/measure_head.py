#!/usr/bin/env python3
"""What a draft head brings on prompts that it was not trained on: two servers of one model, with and without it, asked in turns, one
answer at a time.

    bench/drafts/measure_head.py MODEL HEAD [--headrace PROGRAM] [--prompts HEAD/prompts.txt] [-n 24] [--tokens 160] [-- SERVER FLAGS]

Printed: tokens a verification, tokens a second of both (medians), and the mean of the pairs' ratios with its 95 % interval. Standard library."""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Server:
    def __init__(self, command):
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.child.stdout:
            if found := re.search(r"listening on http://\S+?:(\d+)", line):
                self.at = f"http://127.0.0.1:{found[1]}"
                self.wait_until_ready()
                return
        sys.exit(f"measure_head: the server ended: {' '.join(command)}")

    def wait_until_ready(self):
        """The model is read behind the first line."""
        for _ in range(600):
            try:
                return urllib.request.urlopen(self.at + "/health").read()
            except urllib.error.HTTPError:
                time.sleep(0.1)
        sys.exit("measure_head: the model was not ready within a minute")

    def ask(self, prompt, tokens):
        """Tokens a second behind the first, and the text."""
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        request = urllib.request.Request(self.at + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        first, text, count = None, "", 0
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                for choice in event["choices"]:
                    if choice["delta"].get("content"):
                        first = first or time.perf_counter()
                        text += choice["delta"]["content"]
                        last = time.perf_counter()
                count = (event.get("usage") or {}).get("completion_tokens", count)
        return (count - 1) / (last - first) if count > 8 else None, text

    def metric(self, name):
        with urllib.request.urlopen(self.at + "/metrics") as answer:
            return sum(float(line.rsplit(" ", 1)[1]) for line in answer.read().decode().splitlines() if line.startswith(name))


def main():
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    flags = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("head", type=pathlib.Path)
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--prompts", type=pathlib.Path)
    parser.add_argument("-n", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=160)
    options = parser.parse_args(own)
    prompts = (options.prompts or options.head / "prompts.txt").read_text().splitlines()[:options.n]
    command = [options.headrace, "serve", "-m", options.model, "--port", "0", "--served-model-name", "m", "--max-model-len", "2048",
               "--no-enable-prefix-caching", *flags]
    plain, drafting = Server(command), Server([*command, "--model-draft", str(options.head)])
    try:
        for server in (plain, drafting):
            for prompt in prompts[:3]:  # it learns what passes cost
                server.ask(prompt, options.tokens)
        before = [drafting.metric(f"vllm:spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")]
        pairs, same = [], 0
        for i, prompt in enumerate(prompts):
            both = {}
            for server in (plain, drafting) if i % 2 == 0 else (drafting, plain):
                both[server] = server.ask(prompt, options.tokens)
            if both[plain][0] and both[drafting][0]:
                pairs.append((both[plain][0], both[drafting][0]))
                same += both[plain][1] == both[drafting][1]
        drafts, proposed, accepted = (drafting.metric(f"vllm:spec_decode_num_{name}_total") - was
                                      for name, was in zip(("drafts", "draft_tokens", "accepted_tokens"), before))
    finally:
        for server in (plain, drafting):
            server.child.terminate()
            server.child.wait()
    ratios = [b / a for a, b in pairs]
    around = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
    print(json.dumps({"bench": "a trained head", "head": options.head.name, "pairs": len(pairs), "same_text": same,
                      "tokens_a_verification": round(1 + accepted / max(1, drafts), 3), "proposed": int(proposed), "accepted": int(accepted),
                      "plain_tok_s": round(statistics.median(a for a, _ in pairs), 1), "drafting_tok_s": round(statistics.median(b for _, b in pairs), 1),
                      "ratio": round(statistics.mean(ratios), 3), "ratio_95": round(around, 3)}))


main()
