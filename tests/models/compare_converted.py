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

from safetensors.torch import load_file, save_file

import compare_with_transformers as compare
import make_tiny_models as tiny

# The converter without words, and with the keys of config.json alone where others make it take all for mixtures.
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
    if "_get_suppress_tokens" in vars(kind):
        kind._get_suppress_tokens = lambda self: None
read = base.ModelBase.load_hparams

def without_more(folder, *rest, **named):
    there = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return there if there["model_type"] == "nemotron_h" else {**read(folder, *rest, **named), **there}

base.ModelBase.load_hparams = staticmethod(without_more)
convert_hf_to_gguf.main()
"""


# What a file cannot say, or the converter does not read.
LEFT_OUT = {"phi": "networks are taken for four times as wide as layers", "bamba": "of a form that is not read here"}
# State spaces, of sizes that it takes and without what a file cannot say (limits of time steps, rotations).
STATE_SPACES = {name.removesuffix("-gguf"): (*family, "bfloat16")
                for name, family in {**tiny.MAMBA_GGUF_FILES, **tiny.FIRST_MAMBA_GGUF_FILES}.items()}
STATE_SPACES["mamba2-biases"] = (*compare.FAMILIES["mamba2-biases"][:2], "bfloat16")  # of A_log in f16 it makes A in f16
compare.FAMILIES.update(STATE_SPACES)
compare.AS_THEY_ARE.update(STATE_SPACES)
# Of tokens beyond a layer's table the converter adds zeros, where the library takes the first row.
compare.FAMILIES["llama4"] = tiny.LLAMA4_GGUF_FILES["llama4-gguf"] + ("bfloat16",)
# It wants their layers that draft, or to be told that there are none.
DELTA = ("qwen35", "qwen35-moe", "qwen3-next")
compare.FAMILIES["qwen3-next"] = (*compare.FAMILIES["qwen3-next"][:2], "bfloat16")  # as above
# Of these llama.cpp knows the published models' constants, and one factor of MiniMax's rows.
compare.FAMILIES["minicpm3"] = ("MiniCPM3", dict(tiny.MINICPM3, scale_emb=12, scale_depth=1.4, dim_model_base=256), "bfloat16")
compare.FAMILIES["minimax"] = ("MiniMax", dict(
    tiny.MINIMAX, num_hidden_layers=8, layer_types=["linear_attention"] * 7 + ["full_attention"], **{f"{part}_alpha_factor": 3.5 for part in
    ("full_attn", "linear_attn", "mlp")}, **{f"{part}_beta_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp")}), "bfloat16")
# One share of heads rotates in all layers; experts have no groups, and no scale.
compare.FAMILIES["mimo2"] = ("MiMoV2Flash", dict(tiny.MIMO2, n_group=1, topk_group=1, routed_scaling_factor=1.0, rope_parameters={
    kind: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=0.334) for kind, theta in (("full_attention", 1e4), ("sliding_attention", 500.0))}),
    "bfloat16")
# A file does not say which layers slide: all but each fourth, from the first on.
compare.FAMILIES["laguna"] = ("Laguna", dict(tiny.LAGUNA, num_hidden_layers=5, layer_types=tiny.kinds_of_layers("fsssf")), "bfloat16")
compare.FAMILIES["ling3"] = ("BailingHybrid", {**tiny.LING3, "n_group": 1, "topk_group": 1, "num_hidden_layers": 3,
                                               **{key: tiny.LING3[key][:3] for key in ("layer_types", "mlp_layer_types")}}, "bfloat16")
compare.FAMILIES["gemma3n"][1]["vocab_size_per_layer_input"] = 128


def hub_keys(config):
    """What hub folders of these classes have beside, or instead of, what is written now."""
    kind = config["model_type"]
    turned = config.get("rope_parameters", {}).get("partial_rotary_factor", 1.0)
    keys = {"rotary_pct": turned, "partial_rotary_factor": turned}
    if kind == "glm":
        keys["layernorm_epsilon"] = config["rms_norm_eps"]
    if kind in ("falcon_h1", "granitemoehybrid"):
        inner = config.get("mamba_d_ssm") or config["mamba_expand"] * config["hidden_size"]
        keys.update(mamba_d_head=inner // config["mamba_n_heads"],
                    head_dim=config["hidden_size"] // config["num_attention_heads"])
    if kind == "granitemoehybrid":
        keys["layer_types"] = ["attention" if layer == "full_attention" else "mamba" for layer in config["layer_types"]]
    if kind == "minimax":
        keys.update(architectures=["MiniMaxText01ForCausalLM"], rotary_dim=config["head_dim"],
                    **{f"layernorm_{there}_{of}": config[f"{here}_{of}_factor"] for of in ("alpha", "beta") for here, there in
                       (("full_attn", "full_attention"), ("linear_attn", "linear_attention"), ("mlp", "mlp"))})
    if kind == "mimo_v2_flash":
        rotates = config.pop("rope_parameters")
        keys.update(rope_theta=rotates["full_attention"]["rope_theta"], swa_rope_theta=rotates["sliding_attention"]["rope_theta"],
                    rope_parameters=rotates["full_attention"], topk_method="noaux_tc", scoring_func="sigmoid",
                    swa_num_key_value_heads=2 * config["num_key_value_heads"], swa_num_attention_heads=config["num_attention_heads"],
                    swa_head_dim=config["head_dim"], swa_v_head_dim=config["v_head_dim"], layernorm_epsilon=config["rms_norm_eps"],
                    hybrid_layer_pattern=[int(layer == "sliding_attention") for layer in config["layer_types"]])
    if kind == "laguna":
        keys = {}
    if kind == "bailing_hybrid":
        keys = dict(architectures=["BailingMoeV3ForCausalLM"], no_kda_lora=True, gated_attention_proj_granularity_type="head_wise",
                    head_dim=config["linear_head_dim"], norm_topk_prob=config["moe_renormalize"], score_function="sigmoid",
                    moe_shared_expert_intermediate_size=config["moe_intermediate_size"], num_experts_per_tok=config["num_experts_per_token"],
                    max_position_embeddings=config["model_max_length"], layer_group_size=3)
    if kind in ("dbrx", "step3p5"):
        keys = {}
    if kind == "afmoe":
        keys.update(route_norm=True, score_func="sigmoid")
    if kind == "nemotron_h":
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
        keys.update(d_head=config["mamba_head_dim"], rms_norm_eps=config["layer_norm_epsilon"],
                    hybrid_override_pattern="".join(letters[layer] for layer in config["layers_block_type"]))
        if "moe" not in config["layers_block_type"]:
            config = {key: value for key, value in config.items() if "expert" not in key}
    return {**config, **keys}


def convert(llama_cpp, folder, to):
    """None, or why there is no file."""
    if folder.name in LEFT_OUT:
        return LEFT_OUT[folder.name]
    written = folder / "config.json"
    written.write_text(json.dumps(hub_keys(json.loads(written.read_text()))))
    if folder.name == "minimax":  # what the library saves beside its weights
        weights = load_file(folder / "model.safetensors")
        save_file({key: value for key, value in weights.items() if not key.endswith(("_decay", "slope_rate"))},
                  folder / "model.safetensors", metadata={"format": "pt"})
    if folder.name.startswith("gemma4"):  # words are counted there
        words = {str(i): i for i in range(json.loads(written.read_text()).get("text_config", {}).get("vocab_size", 128))}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    script = CONVERT.replace("LLAMA_CPP", repr(str(llama_cpp)))
    drafts = ["--no-mtp"] if folder.name in DELTA else []
    run = subprocess.run([sys.executable, "-c", script, str(folder), "--outtype", "f32", "--outfile", str(to), *drafts],
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
