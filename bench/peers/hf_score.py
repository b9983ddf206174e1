"""Log-probabilities of HF transformers on a GPU beside ours, teacher-forced on the same ids and the same file.

    python3 bench/peers/hf_score.py --model FOLDER --headrace ./headrace [--sequences 4] [--positions 64]

Runs transformers in fp32 (the truth), in bf16, and `headrace eval score`; prints one JSON line: the mean, the 95th percentile and
the largest |difference of ln p| to fp32 of both, over the ids that were fed and over fp32's five best of each position.
--speed: greedy decode of transformers too, in ms a token, by batch.
"""
import argparse
import json
import subprocess
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def load(folder, dtype):
    start = time.time()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cuda").eval()
    print(f"transformers: {dtype} in {time.time() - start:.1f} s", file=sys.stderr, flush=True)
    return model


def score(model, prompts):
    """[sequences][positions] rows of ln p over the vocabulary, on the CPU in fp32."""
    rows = []
    with torch.no_grad():
        for prompt in prompts:
            logits = model(torch.tensor([prompt], device="cuda")).logits[0]
            rows.append(torch.log_softmax(logits.float(), -1).cpu())
    return rows


def score_ours(headrace, folder, prompts, top, flags):
    lines = "".join(json.dumps({"id": i, "prompt_ids": p}) + "\n" for i, p in enumerate(prompts))
    command = [headrace, "eval", "score", "-", "-m", folder, "--top", str(top), "-c", "4096", *flags]
    out = subprocess.run(command, input=lines, capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(command)}: {out.stderr}")
    return [json.loads(line)["prompt_logprobs"] for line in out.stdout.splitlines()]


def summary(values):
    values = sorted(values)
    return {"mean": round(sum(values) / len(values), 6), "p95": round(values[int(len(values) * 0.95)], 6),
            "max": round(values[-1], 6), "values": len(values)}


def distances(prompts, truth, value_of):
    """|difference| on the fed ids, and on fp32's five best where `value_of` knows them."""
    fed, best = [], []
    for s, prompt in enumerate(prompts):
        for i in range(1, len(prompt)):
            row = truth[s][i - 1]
            fed.append(abs(value_of(s, i, prompt[i]) - row[prompt[i]].item()))
            for token in torch.topk(row, 5).indices.tolist():
                value = value_of(s, i, token)
                if value is not None:
                    best.append(abs(value - row[token].item()))
    return {"fed": summary(fed), "best5": summary(best)}


def speed(model, batch, prompt_tokens=128, new_tokens=32):
    ids = torch.randint(1000, 100000, (batch, prompt_tokens), device="cuda")
    model.generate(ids, max_new_tokens=2, min_new_tokens=2, do_sample=False, pad_token_id=0)
    times = []
    for count in (1, new_tokens + 1):
        torch.cuda.synchronize()
        start = time.time()
        model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
        torch.cuda.synchronize()
        times.append(time.time() - start)
    step = (times[1] - times[0]) / new_tokens * 1e3
    return {"bench": "hf_transformers", "batch": batch, "input": prompt_tokens, "output": new_tokens,
            "step_ms": round(step, 3), "first_token_ms": round(times[0] * 1e3, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--headrace", required=True)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--positions", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16"])
    parser.add_argument("--attention", default="sdpa,eager")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("flags", nargs="*", help="of headrace, after --")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    with open(f"{args.model}/config.json", encoding="utf-8") as file:
        vocab = json.load(file)["vocab_size"]
    generator = torch.Generator().manual_seed(7)
    prompts = torch.randint(10, vocab, (args.sequences, args.positions + 1), generator=generator).tolist()

    model = load(args.model, torch.float32)
    truth = score(model, prompts)
    del model
    torch.cuda.empty_cache()
    result = {"bench": "quality", "dtype": args.dtype, "positions": args.sequences * args.positions}
    half = getattr(torch, args.dtype)
    model = load(args.model, half)
    for attention in args.attention.split(","):
        model.set_attn_implementation(attention)
        rows = score(model, prompts)
        result["hf_" + attention] = distances(prompts, truth, lambda s, i, t: rows[s][i - 1][t].item())
    if args.speed:
        model.set_attn_implementation("sdpa")
        for batch in (1, 8, 64):
            print(json.dumps(speed(model, batch)), flush=True)
    del model
    torch.cuda.empty_cache()

    ours = score_ours(args.headrace, args.model, prompts, 20, args.flags)

    def value_of(s, i, token):
        entry = ours[s][i]
        if entry["token"] == token:
            return entry["logprob"]
        return dict(map(tuple, entry["top"])).get(token)

    result["headrace"] = distances(prompts, truth, value_of)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
