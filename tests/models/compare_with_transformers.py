#!/usr/bin/env python3
"""Random models of configurations that are not in the repository against Hugging Face transformers:

    python3 tests/models/compare_with_transformers.py build/src/models/models_test [--seed N] [--knock-out] [FAMILY ...]

For each family of make_tiny_models.py, sizes, heads, windows, rotations and prompts are drawn anew; the library computes
every layer and the logits in fp32, the test programs the same of the folder (TinyModels, HEADRACE_TINY_MODELS): each
hidden row, and the largest |d ln p| of all tokens. --knock-out: of each tensor that is small (norms, biases, sinks, biases
of choices), what setting it to the value that does nothing moves ln p by.
"""
import argparse
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import make_tiny_models as tiny

FAMILIES = {**tiny.FOLDERS, **tiny.LATER_FOLDERS, **tiny.EXPERT_FOLDERS, **tiny.ROUTER_FOLDERS, **tiny.STATE_FOLDERS,
            **tiny.LATER_STATE_FOLDERS, **tiny.LATENT_FOLDERS, **tiny.KIN_FOLDERS}
# Whose sizes hang together in ways of their own.
AS_THEY_ARE = {*tiny.STATE_FOLDERS, *tiny.LATER_STATE_FOLDERS, *tiny.LATENT_FOLDERS, "phi3-long", "phi3-partial"}


def drawn_sizes(name, options, rng):
    """Other sizes than the repository's, in the same relations."""
    if name in AS_THEY_ARE:
        return {}
    groups, kv_heads = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    if name.startswith("gpt-neox"):
        groups = 1
    heads = groups * kv_heads
    head_dim = rng.choice([8, 16, 24, 32])
    hidden = heads * head_dim
    drawn = dict(hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads,
                 intermediate_size=rng.choice([32, 40, 56, 72]), vocab_size=rng.choice([89, 101, 128]))
    if "head_dim" in options:
        drawn["head_dim"] = head_dim
    if options.get("sliding_window"):
        drawn["sliding_window"] = rng.choice([5, 9, 17, 33])
    return drawn


def make(folder, name, seed):
    kind, options, dtype_name = FAMILIES[name]
    rng = random.Random(f"{name} {seed}")
    options = {**options, **drawn_sizes(name, options, rng)}
    dtype = getattr(torch, dtype_name)
    model = tiny.make_model(kind, options, dtype, seed + 5000)
    for buffer_name, buffer in model.named_buffers():
        if buffer_name.endswith("bias"):  # of choices, which the file rounds
            buffer.copy_(buffer.to(dtype))
    save_file(tiny.expected_values(model, seed), folder / f"{name}.expected.safetensors")
    tiny.write_folder(folder / name, name, model, dtype)


def errors(binary, folder, only="Every*:TinyModels.Give*"):
    """|d ln p| by model, and whether all agree."""
    run = subprocess.run([binary, f"--gtest_filter=TinyModels.{only}"], capture_output=True, text=True,
                         env={**os.environ, "HEADRACE_TINY_MODELS": str(folder)})
    found = {}
    for line in run.stdout.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] in FAMILIES:
            found[words[0]] = float(words[1])
    return found, run.returncode == 0, run.stdout


def neutral(name, value):
    """What does nothing in the place of a small tensor, or None."""
    if name.endswith("sinks"):
        return torch.full_like(value, -30.0)
    if name.endswith("bias"):
        return torch.zeros_like(value)
    return torch.ones_like(value) if value.dim() == 1 and "norm" in name else None


def knock_out(binary, folder, name):
    path = folder / name / "model.safetensors"
    weights = load_file(path)
    kinds = {}
    for tensor, value in weights.items():
        kind = ".".join(word for word in tensor.split(".") if not word.isdigit())
        if neutral(tensor, value) is not None:
            kinds.setdefault(kind, []).append(tensor)
    for kind, tensors in kinds.items():
        changed = {**weights, **{tensor: neutral(tensor, weights[tensor]) for tensor in tensors}}
        save_file(changed, path, metadata={"format": "pt"})
        print(f"  {name} without {kind}: {errors(binary, folder, 'Give*')[0].get(name)}")
    save_file(weights, path, metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--knock-out", action="store_true")
    parser.add_argument("families", nargs="*")
    arguments = parser.parse_intermixed_args()
    wrong = []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tiny-models-"))
    try:
        for name in arguments.families or FAMILIES:
            for each in folder.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            make(folder, name, arguments.seed)
            found, equal, output = errors(arguments.binary, folder)
            print(f"{name} {FAMILIES[name][0]} {found.get(name)}{'' if equal else ' WRONG'}", flush=True)
            if not equal:
                wrong.append(name)
                print(output)
            if arguments.knock_out:
                knock_out(arguments.binary, folder, name)
    finally:
        shutil.rmtree(folder)
    sys.exit(f"wrong: {' '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
