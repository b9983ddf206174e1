#!/usr/bin/env python3
"""Writes an EAGLE-3 head of random weights for a model's folder, of the sizes that hub heads of such models have, to measure what a head
costs (with synthetic_acceptance_rate, for it is right of nothing):

    python3 bench/dummy_head.py MODEL_FOLDER OUT_FOLDER [--draft-vocab 32000]

Needs numpy and safetensors."""
import argparse
import json
import pathlib

import numpy
from safetensors.numpy import save_file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--draft-vocab", type=int, default=32000)
    options = parser.parse_args()
    model = json.loads((options.model / "config.json").read_text())
    hidden, ffn, vocab = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    heads, kv_heads = model["num_attention_heads"], model["num_key_value_heads"]
    head_dim = model.get("head_dim") or hidden // heads
    random = numpy.random.default_rng(1)

    def matrix(rows, columns):
        return random.standard_normal((rows, columns), dtype=numpy.float32).astype(numpy.float16) * numpy.float16(0.5 / columns**0.5)

    tensors = {"fc.weight": matrix(hidden, 3 * hidden), "lm_head.weight": matrix(options.draft_vocab, hidden),
               "midlayer.self_attn.q_proj.weight": matrix(heads * head_dim, 2 * hidden),
               "midlayer.self_attn.k_proj.weight": matrix(kv_heads * head_dim, 2 * hidden),
               "midlayer.self_attn.v_proj.weight": matrix(kv_heads * head_dim, 2 * hidden),
               "midlayer.self_attn.o_proj.weight": matrix(hidden, heads * head_dim),
               "midlayer.mlp.gate_proj.weight": matrix(ffn, hidden), "midlayer.mlp.up_proj.weight": matrix(ffn, hidden),
               "midlayer.mlp.down_proj.weight": matrix(hidden, ffn)}
    for name in ("norm.weight", "midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight",
                 "midlayer.post_attention_layernorm.weight"):
        tensors[name] = numpy.ones(hidden, numpy.float16)
    ids = numpy.linspace(0, vocab - 1, options.draft_vocab).astype(numpy.int64)
    tensors["d2t"] = ids - numpy.arange(options.draft_vocab)
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, options.out / "model.safetensors")
    kept = {name: model[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size",
                                            "rms_norm_eps", "rope_theta", "max_position_embeddings", "hidden_act") if name in model}
    config = kept | {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1, "head_dim": head_dim,
                     "draft_vocab_size": options.draft_vocab, "torch_dtype": "float16"}
    (options.out / "config.json").write_text(json.dumps(config, indent=1))


main()
