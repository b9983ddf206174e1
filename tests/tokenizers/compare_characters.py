#!/usr/bin/env python3
"""Which single characters our normalisers and patterns take differently from HF tokenizers: both have tables of some
version of Unicode, and characters that are newer than one of them differ.

    V/bin/python tests/tokenizers/compare_characters.py --program build/tests/encode_lines
"""

import argparse
import json
import os
import subprocess
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from families import LETTERS


def bytes_tokenizer(normalizer=None, pre=None):
    """Tokens are single bytes, so that the decoded text is the normalised one; or "a" + x + "b" is cut or not."""
    merges = [("a", "a")] if pre else []
    tokens = {c: i for i, c in enumerate(LETTERS.values())} | {a + b: 256 + i for i, (a, b) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(tokens, merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    steps = [pre] if pre else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def ours(program, tokenizer, texts):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        tokenizer.save(path)
        done = subprocess.run([program, path, "--no-special"], input="".join(json.dumps(t) + "\n" for t in texts).encode(),
                              capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def ranges(codes):
    runs = []
    for code in codes:
        if runs and runs[-1][1] + 1 == code:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in runs)


CASES = {
    "NFC": (normalizers.NFC(), None), "NFD": (normalizers.NFD(), None), "NFKC": (normalizers.NFKC(), None),
    "NFKD": (normalizers.NFKD(), None), "Lowercase": (normalizers.Lowercase(), None),
    "StripAccents": (normalizers.StripAccents(), None), "Strip": (normalizers.Strip(), None),
    "Digits": (None, pre_tokenizers.Digits(True)), "Punctuation": (None, pre_tokenizers.Punctuation()),
    "Whitespace": (None, pre_tokenizers.Whitespace()), "WhitespaceSplit": (None, pre_tokenizers.WhitespaceSplit()),
} | {f"Split {p}": (None, pre_tokenizers.Split(Regex(p), "isolated"))
     for p in [r"\p{L}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}",
               r"\s", r"\w", r"\d", r"\S", r"[^\s\p{L}\p{N}]", r"\p{Han}", r"(?i:k)", r"(?i:s)", r"\b.", r"."]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("case", nargs="*", help="names of CASES")
    options = parser.parse_args()
    # Planes 4 to 13 are unassigned, 15 and 16 private.
    codes = [c for c in [*range(1, 0x40000), *range(0xE0000, 0xF0000)] if not 0xD800 <= c < 0xE000]
    for name, (normalizer, pre) in CASES.items():
        if options.case and name not in options.case:
            continue
        tokenizer = bytes_tokenizer(normalizer, pre)
        # Between "a"s: where x is cut off, nothing joins; a pattern that takes it in changes the pieces' number.
        texts = [f"a{chr(c)}aa" if pre else chr(c) for c in codes]
        want = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
        got = [line["ids"] for line in ours(options.program, tokenizer, texts)]
        wrong = [c for c, w, g in zip(codes, want, got, strict=True) if w != g]
        if pre:  # what is cut off cannot be seen by ids alone: let it join with what follows, of either class
            wrong += split_differences(options.program, pre, codes, "a") + split_differences(options.program, pre, codes, "-")
        print(f"{name}: {len(set(wrong))} of {len(codes)} differ: {ranges(sorted(set(wrong)))}", flush=True)


def split_differences(program, pre, codes, behind):
    """A character whose last byte joins with what is behind it unless it is cut off."""
    letters = list(LETTERS.values())
    merges = [(c, behind) for c in letters if c != behind]
    tokens = {c: i for i, c in enumerate(letters)} | {a + b: 256 + i for i, (a, b) in enumerate(merges)}
    tokenizer = Tokenizer(models.BPE(tokens, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    texts = [f"{chr(c)}{behind}" for c in codes]
    want = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    got = [line["ids"] for line in ours(program, tokenizer, texts)]
    return [c for c, w, g in zip(codes, want, got, strict=True) if w != g]


if __name__ == "__main__":
    main()
