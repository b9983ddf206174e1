#!/usr/bin/env python3
"""As compare_with_transformers.py, of GGUF files that llama.cpp's own converter makes of the folders:

    python3 tests/models/compare_converted.py LLAMA_CPP build/src/models/models_test [--seed N] [FAMILY ...]

LLAMA_CPP: a checkout that has convert_hf_to_gguf.py (the source package of llama-cpp-python on PyPI holds one, below
vendor). Files have no words: models are read from ids. What the converter refuses is named and left out.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import compare_with_transformers as compare

# The converter without words, and with keys that it reads and this transformers no longer writes.
CONVERT = """
import importlib, json, pathlib, pkgutil, sys
sys.path[:0] = [LLAMA_CPP + "/gguf-py", LLAMA_CPP]
import conversion.base as base
for module in pkgutil.iter_modules(importlib.import_module("conversion").__path__):
    importlib.import_module("conversion." + module.name)
import convert_hf_to_gguf

def kinds(kind):
    yield kind
    for each in kind.__subclasses__():
        yield from kinds(each)

for kind in kinds(base.ModelBase):
    if "set_vocab" in vars(kind):
        kind.set_vocab = lambda self: None
read = base.ModelBase.load_hparams

def read_both(folder, *rest, **named):
    return {**read(folder, *rest, **named), **json.loads((pathlib.Path(folder) / "old_keys.json").read_text())}

base.ModelBase.load_hparams = staticmethod(read_both)
convert_hf_to_gguf.main()
"""


# Whose sizes the converter does not read.
LEFT_OUT = {"phi": "networks are taken for four times as wide as layers"}


def old_keys(config):
    """What hub folders of these classes have beside what is written now."""
    turned = config.get("rope_parameters", {}).get("partial_rotary_factor", 1.0)
    keys = {"rotary_pct": turned, "partial_rotary_factor": turned}
    if config["model_type"] == "glm":
        keys["layernorm_epsilon"] = config["rms_norm_eps"]
    return keys


def convert(llama_cpp, folder, to):
    """None, or why there is no file."""
    if folder.name in LEFT_OUT:
        return LEFT_OUT[folder.name]
    (folder / "old_keys.json").write_text(json.dumps(old_keys(json.loads((folder / "config.json").read_text()))))
    script = CONVERT.replace("LLAMA_CPP", repr(str(llama_cpp)))
    run = subprocess.run([sys.executable, "-c", script, str(folder), "--outtype", "f32", "--outfile", str(to)],
                         capture_output=True, text=True)
    return (run.stderr.strip() or "failed").splitlines()[-1] if run.returncode else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama_cpp", type=pathlib.Path)
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("families", nargs="*")
    arguments = parser.parse_intermixed_args()
    wrong = []
    for name in arguments.families or compare.FAMILIES:
        with tempfile.TemporaryDirectory(prefix="converted-") as scratch:
            folder, files = pathlib.Path(scratch) / "folders", pathlib.Path(scratch) / "files"
            folder.mkdir()
            files.mkdir()
            compare.make(folder, name, arguments.seed)
            refusal = convert(arguments.llama_cpp, folder / name, files / f"{name}.gguf")
            if refusal:
                print(f"{name}: not converted: {refusal}", flush=True)
                continue
            shutil.copy(folder / f"{name}.expected.safetensors", files)
            found, equal, output = compare.errors(arguments.binary, files)
            print(f"{name} {found.get(name)}{'' if equal else ' WRONG'}", flush=True)
            if not equal:
                wrong.append(name)
                print(output)
    sys.exit(f"wrong: {' '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
