#!/usr/bin/env python3
"""Makes what Hugging Face transformers' beam search finds on some tiny models: the oracle of
tests/models/beam_engine_test.cc. Run once by hand, its output is committed:

    pip install torch transformers
    python3 tests/models/make_beam_cases.py tests/data/models tests/data/beams.json

A case: a model, a prompt, the parameters of generate() (fp32, eager attention), and the sequences found with
their scores, best first. The ids that end an answer are among those that are found without any, so that some
answers end early.
"""
import json
import pathlib
import random
import sys

import torch
import transformers

MODELS = ["llama", "qwen2", "gemma3", "mixtral"]
WIDTHS = [2, 4, 8]
RULES = [(1.0, False), (0.5, True), (2.0, "never"), (0.0, "never"), (-1.0, False)]
TOKENS = 14


def search(model, prompt, width, penalty, early, ends, least=0):
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), num_beams=width, num_return_sequences=width,
                         do_sample=False, max_new_tokens=TOKENS, min_new_tokens=least or None, length_penalty=penalty,
                         early_stopping=early, eos_token_id=ends or None, pad_token_id=0,
                         return_dict_in_generate=True, output_scores=True)
    answers = []
    for row in out.sequences[:, len(prompt):].tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        answers.append(row[:end])
    return answers, out.sequences_scores.tolist()


def main(models, out):
    rng = random.Random(7)
    cases = []
    for name in MODELS:
        model = transformers.AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32,
                                                                  attn_implementation="eager").eval()
        model.generation_config = transformers.GenerationConfig()
        for number, (penalty, early) in enumerate(RULES):
            for width in WIDTHS:
                prompt = [rng.randrange(3, model.config.vocab_size) for _ in range(rng.choice([3, 16, 21, 40]))]
                found, _ = search(model, prompt, width, penalty, early, [])
                seen = sorted({token for answer in found for token in answer[1:]})
                ends = rng.sample(seen, min(len(seen), 1 + (number + width) % 3)) if number else []
                least = 4 if number == 4 else 0
                answers, scores = search(model, prompt, width, penalty, early, ends, least)
                cases.append(dict(model=name, prompt=prompt, width=width, length_penalty=penalty,
                                  early_stopping=str(early).lower(), ends=ends, min_tokens=least, max_tokens=TOKENS,
                                  answers=answers, scores=scores))
    short = sum(len(answer) < TOKENS for case in cases for answer in case["answers"])
    print(len(cases), "cases,", short, "answers that end early")
    out.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
