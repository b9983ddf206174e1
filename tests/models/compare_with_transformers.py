#!/usr/bin/env python3
"""Random models of configurations that are not in the repository against Hugging Face transformers:

    python3 tests/models/compare_with_transformers.py build/src/models/models_test [--seed N] [--knock-out] [FAMILY ...]

For each family of make_tiny_models.py, sizes, heads, windows, rotations and prompts are drawn anew; the library computes
every layer and the logits in fp32, the test programs the same of the folder (TinyModels, HEADRACE_TINY_MODELS): each
hidden row, and the largest |d ln p| of all tokens. A case that is not equal and that the library itself answers
otherwise when its weights move by a rounding (two experts of equal scores, say) is a bad case, and no fault.

--knock-out: what each part moves ln p by, taken away from what is loaded alone: tensors that are small (norms, biases,
sinks, biases of choices) set to the value that does nothing, and keys of config.json (KNOCKED_KEYS). A part that moves
it by less than 100 times the difference that stays with it is named WEAK: the case does not show it.
"""
import argparse
import copy
import json
import math
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
            **tiny.LATER_STATE_FOLDERS, **tiny.LATENT_FOLDERS, **tiny.KIN_FOLDERS, **tiny.GPT_FOLDERS,
            **tiny.MAMBA_FOLDERS, **tiny.LAST_FOLDERS, **tiny.NEWEST_FOLDERS, **tiny.LLAMA4_FOLDERS, **tiny.SPARSE_FOLDERS, **tiny.KIMI_FOLDERS,
             **tiny.MORE_FOLDERS, **tiny.LATEST_FOLDERS, **tiny.FURTHER_FOLDERS, **tiny.SEEING_FOLDERS, **tiny.BLOCK_FOLDERS, **tiny.SHARING_FOLDERS, **tiny.GATED_FOLDERS, **tiny.PRUNED_FOLDERS}
DIFFERENCE_MAX = 1e-4  # of ln p, as the test has it
# Whose sizes hang together in ways of their own.
AS_THEY_ARE = {*tiny.STATE_FOLDERS, *tiny.LATER_STATE_FOLDERS, *tiny.LATENT_FOLDERS, *tiny.GPT_FOLDERS,
               "phi3-long", "phi3-partial", "recurrent-gemma", "recurrent-gemma-wide"}


def drawn_state_space(kind, options, rng):
    """Of families of state spaces: heads, groups, states, convolutions, and the sizes of layers."""
    groups, dim = rng.choice([1, 2, 3]), rng.choice([4, 8, 16, 20, 36])
    heads, state, taps = groups * rng.choice([1, 2, 4]), rng.choice([5, 8, 16, 33]), rng.choice([2, 3, 4])
    inner = heads * dim  # so many times as wide as rows
    hidden = rng.choice([width for width in (24, 32, 48, inner, inner // 2)
                         if width % 4 == 0 and (kind == "NemotronH" or inner % width == 0)])
    times = inner // hidden
    drawn = dict(hidden_size=hidden, vocab_size=rng.choice([89, 101, 128]))
    if kind in ("Mamba", "FalconMamba"):
        return dict(**drawn, state_size=state, conv_kernel=taps, expand=rng.choice([1, 2, 3]), time_step_rank=rng.choice([1, 3, 8]))
    if kind == "Mamba2":
        return dict(**drawn, num_heads=heads, head_dim=dim, n_groups=groups, state_size=state, conv_kernel=taps, expand=times)
    query_heads = next(count for count in (4, 2, 1) if hidden % (4 * count) == 0)
    drawn.update(num_attention_heads=query_heads, num_key_value_heads=rng.choice([1, query_heads]),
                 intermediate_size=rng.choice([32, 40, 56]))
    if kind == "NemotronH":
        return dict(**drawn, mamba_num_heads=heads, mamba_head_dim=dim, n_groups=groups, ssm_state_size=state,
                    conv_kernel=taps)
    if kind == "Jamba":
        return dict(**drawn, mamba_d_state=state, mamba_d_conv=taps, mamba_expand=rng.choice([1, 2, 3]), mamba_dt_rank=rng.choice([2, 3, 8]))
    if kind == "FalconH1":
        drawn["mamba_d_ssm"] = inner
    return dict(**drawn, mamba_n_heads=heads, mamba_n_groups=groups, mamba_d_state=state, mamba_d_conv=taps,
                mamba_expand=times)


def drawn_sizes(name, options, rng):
    """Other sizes than the repository's, in the same relations."""
    if name in tiny.SPARSE_FOLDERS:
        rotated, heads = rng.choice([4, 8, 16]), rng.choice([2, 3, 5])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rotated,
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), q_lora_rank=rng.choice([12, 24]),
                    index_head_dim=rotated * rng.choice([1, 2, 3]), index_n_heads=rng.choice([9, 12, 21]), index_topk=rng.choice([5, 17, 33, 64]))
    if name in tiny.KIMI_FOLDERS:
        heads = rng.choice([2, 3, 5])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rng.choice([4, 8, 16]),
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), linear_head_dim=rng.choice([5, 16, 33, 48]),
                    linear_num_heads=heads, linear_conv_kernel_dim=rng.choice([2, 3, 4]))
    if name == "mimo2":
        kv_heads, dim, window = rng.choice([1, 2, 3]), rng.choice([12, 16, 24, 32]), rng.choice([5, 9, 17, 33])
        shares = [kind["partial_rotary_factor"] for kind in options["rope_parameters"].values()]
        rotated = [(rng.choice([4, 6, 8, dim]) + 0.01) / (dim + 0.01) for _ in shares]
        rotates = [dict(rope_type="default", rope_theta=theta, partial_rotary_factor=rotated[0] if shares[0] == shares[1] else share)
                   for theta, share in zip((1e4, 500.0), rotated)]
        return dict(num_attention_heads=2 * kv_heads * rng.choice([1, 2]), num_key_value_heads=kv_heads, head_dim=dim, v_head_dim=rng.choice([6, 8, 10, 16, 48]),
                    sliding_window=window, attention_value_scale=rng.choice([None, 0.5, 1.7]), hidden_size=rng.choice([32, 40, 56]),
                    rope_parameters=dict(zip(("full_attention", "sliding_attention"), rotates)))
    if name.startswith("laguna"):
        kv_heads, layers = rng.choice([1, 2, 3]), options["num_hidden_layers"]
        heads = None if name == "laguna-elements" else [kv_heads * rng.choice([1, 2, 3]) for _ in range(layers)]
        return dict(num_attention_heads=2 * kv_heads, num_attention_heads_per_layer=heads, num_key_value_heads=kv_heads, head_dim=rng.choice([8, 16, 24]),
                    sliding_window=rng.choice([5, 9, 17, 33]), hidden_size=rng.choice([32, 40, 56]), shared_expert_intermediate_size=rng.choice([16, 24, 56]))
    if name in ("step35", "step37"):
        kv_heads, layers = rng.choice([1, 2, 3]), options["num_hidden_layers"]
        return dict(num_attention_heads=kv_heads * rng.choice([1, 2]), num_sliding_attention_heads=kv_heads * rng.choice([1, 3]), num_key_value_heads=kv_heads,
                    head_dim=rng.choice([8, 16, 24]), sliding_window=rng.choice([5, 9, 17, 33]), hidden_size=rng.choice([32, 40, 56]), share_expert_dim=rng.choice([16, 24, 56]),
                    swiglu_limits=[rng.choice([0.3, 0.6, 1.5]) for _ in range(layers)], swiglu_limits_shared=[rng.choice([0.2, 0.7, 1.1]) for _ in range(layers)],
                    moe_router_scaling_factor=rng.choice([1.7, 3.0]))
    if name.startswith(("glm4v", "qwen3-vl-moe")):
        kv_heads, dim = rng.choice([1, 2, 3]), rng.choice([8, 16, 24, 32])
        pairs, heads = dim // 4 if name.startswith("glm4v") else dim // 2, kv_heads * rng.choice([1, 2])
        sections = dict(rope_parameters={**options["rope_parameters"], "mrope_section": [pairs - pairs // 2, pairs // 2, 0]})
        hidden = heads * dim if name == "glm4v" else rng.choice([32, 40, 56])
        return dict(num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=hidden, intermediate_size=rng.choice([32, 40, 72]), **sections,
                    **({} if name == "glm4v" else dict(head_dim=dim, moe_intermediate_size=rng.choice([12, 20, 48]))))
    if name.startswith("ling3"):
        heads = rng.choice([2, 3, 5])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rng.choice([4, 8, 16]),
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), head_dim=rng.choice([5, 16, 33, 48]),
                    short_conv_kernel_size=rng.choice([2, 3, 4]), kda_lower_bound=rng.choice([-2.0, -5.0, -8.0]))
    if name == "hy-v4":
        rotated, heads = rng.choice([4, 8, 16]), rng.choice([2, 3, 5])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rotated,
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), q_lora_rank=rng.choice([12, 24]), hc_mult=rng.choice([2, 3, 4]),
                    index_head_dim=rotated * rng.choice([1, 2, 3]), index_n_heads=rng.choice([9, 12, 21]), index_topk=rng.choice([5, 17, 33, 64]),
                    swiglu_limit=rng.choice([0.7, 1.5, 10.0]))
    if name == "axk1":
        heads = rng.choice([2, 3, 5])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rng.choice([4, 8, 16]),
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), q_lora_rank=rng.choice([12, 24]))
    if name.startswith("qwen4-exp"):
        keys, kv_heads, rotated, blocks, parts = rng.choice([1, 2, 3]), rng.choice([1, 2, 3]), rng.choice([4, 8]), rng.choice([2, 3, 4]), rng.choice([1, 2, 5])
        dim, tokens, size, hashes = rotated * rng.choice([2, 4]), 16 if name == "qwen4-exp-vl" else rng.choice([3, 4, 7, 16]), rng.choice([2, 3, 4]), rng.choice([1, 2, 3])
        return dict(num_attention_heads=kv_heads * rng.choice([1, 2]), num_key_value_heads=kv_heads, head_dim=dim, hidden_size=rng.choice([32, 40, 56]),
                    rope_parameters={**options["rope_parameters"], "partial_rotary_factor": rotated / dim}, linear_num_key_heads=keys, linear_num_value_heads=keys * rng.choice([1, 2]),
                    linear_key_head_dim=rng.choice([5, 16, 33]), linear_value_head_dim=rng.choice([6, 16, 20]), linear_conv_kernel_dim=rng.choice([2, 3, 4]), hc_count=rng.choice([2, 3, 4]),
                    hc_lowrank=rng.choice([1, 7, 20]), ngram_size=size, heads_per_ngram=hashes, ple_embed_dim=(size - 1) * hashes * rng.choice([3, 8]), split_ngram_parts=parts,
                    ple_conv_kernel_size=rng.choice([2, 3, 4]), ngram_vocab_size_base=rng.choice([20, 61, 500]), make_ngram_vocab_size_divisible_by=rng.choice([1, 8, 30]), seed=rng.choice([0, 1234, 2**40]),
                    indexer_n_heads=rng.choice([9, 12, 21]), indexer_head_dim=rotated + rng.choice([0, 2, 9]), indexer_compress_ratio=tokens, indexer_budget=tokens * blocks,
                    shared_expert_intermediate_size=rng.choice([16, 24, 56]), eos_token_id=rng.choice([2, [43, 2], 7]))
    if name.startswith("axk2"):
        rotated, heads = rng.choice([4, 8, 16]), rng.choice([2, 3, 5])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rotated,
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), q_lora_rank=rng.choice([12, 24]), gated_norm_rank=rng.choice([1, 3, 10]),
                    index_head_dim=rotated * rng.choice([1, 2, 3]), index_n_heads=rng.choice([9, 12, 21]), index_topk=rng.choice([5, 17, 33, 64]))
    if name in ("longcat", "kimi-k25") or name.startswith(("mistral4", "sarvam-mla")):
        heads = rng.choice([2, 3, 5])
        drawn = dict(num_attention_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rng.choice([4, 8, 16]),
                     qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), hidden_size=rng.choice([32, 40, 56]))
        if name == "longcat":
            return dict(**drawn, head_dim=drawn["qk_rope_head_dim"], q_lora_rank=rng.choice([12, 24]), n_routed_experts=rng.choice([5, 7]), zero_expert_num=rng.choice([1, 2, 6]), moe_topk=rng.choice([2, 4]),
                        ffn_hidden_size=rng.choice([40, 72]), expert_ffn_hidden_size=rng.choice([16, 40]), num_layers=rng.choice([1, 3]))
        return dict(**drawn, num_key_value_heads=heads, **(dict(q_lora_rank=rng.choice([12, 24])) if name in ("mistral4", "kimi-k25") else {}))
    if name.startswith("zamba2"):
        groups = rng.choice([1, 2])
        return dict(hidden_size=rng.choice([24, 32, 48]), n_mamba_heads=groups * rng.choice([1, 2, 4]), mamba_ngroups=groups,
                    mamba_d_state=rng.choice([5, 8, 16, 33]), mamba_d_conv=rng.choice([2, 3, 4]), adapter_rank=rng.choice([1, 3, 9]), num_mem_blocks=rng.choice([1, 2]),
                    intermediate_size=rng.choice([32, 40, 56]), **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), rng.choice([1, 2, 4])))
    if name.startswith("minimax-m3"):
        kv_heads, dim, rotated, whole = rng.choice([1, 2, 3]), rng.choice([8, 16, 24, 32]), rng.choice([4, 8]), name == "minimax-m3-hub"
        return dict(num_attention_heads=kv_heads * rng.choice([1, 2, 3]), num_key_value_heads=kv_heads, index_n_heads=kv_heads, head_dim=dim, rotary_dim=rotated,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=(rotated + 0.01) / (dim + 0.01)), hidden_size=rng.choice([32, 40, 56]),
                    index_head_dim=rotated + rng.choice([2, 4, 9]), index_block_size=16 if whole else rng.choice([3, 4, 7, 16]), index_topk_blocks=rng.choice([2, 3]),
                    index_local_blocks=rng.choice([0, 1, 2]), shared_intermediate_size=rng.choice([16, 24, 56]), intermediate_size=rng.choice([16, 40]),
                    **({} if whole else dict(swiglu_alpha=rng.choice([0.7, 1.3, 1.702]), swiglu_limit=rng.choice([0.7, 1.5, 7.0]))))
    if name in tiny.SHARING_FOLDERS:
        groups, rotated = rng.choice([1, 2, 3]), rng.choice([4, 8])
        dim = rotated * rng.choice([2, 4])
        return dict(num_attention_heads=groups * rng.choice([1, 2]), head_dim=dim, partial_rotary_factor=rotated / dim, q_lora_rank=rng.choice([12, 24]),
                    hidden_size=rng.choice([32, 40, 56]), intermediate_size=rng.choice([16, 24, 40]), sliding_window=rng.choice([5, 9, 17, 33]), o_groups=groups,
                    o_lora_rank=rng.choice([6, 12]), index_n_heads=rng.choice([9, 12, 21]), index_head_dim=rotated * rng.choice([1, 2, 3]), index_topk=rng.choice([3, 5, 9]),
                    compress_rates=dict(compressed_sparse_attention=rng.choice([2, 3, 4, 5]), heavily_compressed_attention=rng.choice([6, 16, 20, 32])),
                    hc_mult=rng.choice([2, 3, 4]), hc_sinkhorn_iters=rng.choice([1, 2, 5, 20]), swiglu_limit=rng.choice([0.7, 1.5]),
                    routed_scaling_factor=rng.choice([1.5, 2.5]), scoring_func=rng.choice(["sqrtsoftplus", "sigmoid"]))
    if name.startswith("inkling"):
        kv_heads, own = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
        return dict(num_attention_heads=kv_heads * rng.choice([1, 2, 3]), num_key_value_heads=kv_heads, head_dim=rng.choice([8, 16, 24, 32]), swa_num_key_value_heads=own,
                    swa_num_attention_heads=own * rng.choice([1, 2, 3]), swa_head_dim=rng.choice([8, 16, 24]), sliding_window_size=rng.choice([5, 9, 17, 33]),
                    d_rel=rng.choice([1, 3, 5, 16]), rel_extent=rng.choice([7, 16, 33, 200]), hidden_size=rng.choice([32, 40, 56]), intermediate_size=rng.choice([16, 40, 72]),
                    moe_intermediate_size=rng.choice([16, 24, 40]), conv_kernel_size=rng.choice([2, 3, 4, 6]), n_shared_experts=rng.choice([1, 2, 3]),
                    n_routed_experts=rng.choice([5, 8]), num_experts_per_tok=rng.choice([2, 4]), log_scaling_n_floor=rng.choice([7, 32]), unpadded_vocab_size=rng.choice([None, 70]))
    if name.startswith("apertus15"):
        kv_heads = rng.choice([1, 2, 3])
        return dict(num_attention_heads=kv_heads * rng.choice([1, 2, 3]), num_key_value_heads=kv_heads, head_dim=rng.choice([8, 16, 24]), hidden_size=rng.choice([32, 40, 56]),
                    intermediate_size=rng.choice([16, 40, 72]), output_vocab_size=rng.choice([33, 64, 95]))
    if name == "dbrx":
        kv_heads = rng.choice([1, 2, 3])
        heads = kv_heads * rng.choice([1, 2, 3])
        return dict(n_heads=heads, d_model=heads * rng.choice([8, 12, 20]), attn_config=dict(kv_n_heads=kv_heads, clip_qkv=rng.choice([0.7, 1.5, None]), rope_theta=10000.0),
                    ffn_config=dict(ffn_hidden_size=rng.choice([16, 24, 40]), moe_num_experts=rng.choice([5, 8]), moe_top_k=rng.choice([2, 3]),
                                    moe_normalize_expert_weights=rng.choice([None, 1.0])))
    if name in ("minicpm3", "youtu"):
        heads, rotated = rng.choice([2, 3, 5]), 8 if name == "minicpm3" else rng.choice([4, 8, 16])
        return dict(num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 20, 33]), qk_rope_head_dim=rotated,
                    qk_nope_head_dim=rng.choice([6, 12, 17]), v_head_dim=rng.choice([5, 10, 16]), q_lora_rank=rng.choice([12, 24]),
                    hidden_size=heads * rng.choice([8, 12, 20]))
    if name in ("openai-gpt", "ctrl", "xglm"):
        heads = rng.choice([1, 2, 3, 5])
        width = heads * rng.choice([8, 12, 20])
        return (dict(attention_heads=heads, d_model=width, ffn_dim=rng.choice([32, 40, 56])) if name == "xglm" else
                dict(n_head=heads, n_embd=width, **({} if name == "openai-gpt" else dict(dff=rng.choice([32, 40, 56])))))
    if name.startswith("olmo-hybrid"):
        keys, dim, each = rng.choice([1, 2, 3]), rng.choice([8, 12, 20]), rng.choice([1, 2, 4])
        return dict(linear_num_key_heads=keys, linear_num_value_heads=keys * each, linear_key_head_dim=dim, linear_value_head_dim=dim // each,
                    linear_conv_kernel_dim=rng.choice([2, 3, 4]), vocab_size=rng.choice([89, 101, 128]))
    if name in AS_THEY_ARE:
        return {}
    if name in tiny.MAMBA_FOLDERS:
        return drawn_state_space(FAMILIES[name][0], options, rng)
    if name == "rwkv7":  # heads whose eps is the author's
        ranks = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")
        return dict(hidden_size=rng.choice([64, 128, 192]), head_dim=64, num_hidden_layers=3, vocab_size=rng.choice([89, 101, 128]),
                    intermediate_size=rng.choice([64, 72, 160]), 
                    **{rank: rng.choice([2, 3, 8, 20]) for rank in ranks})  # of 1 the author's package makes vectors
    if name in ("bloom", "mpt"):
        heads, hidden = rng.choice([1, 2, 3, 5, 7, 8]), "hidden_size" if name == "bloom" else "d_model"
        return {"n_head" if name == "bloom" else "n_heads": heads, hidden: heads * rng.choice([8, 16, 20])}
    groups, kv_heads = rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
    if name.startswith("gpt-neox") or name in ("biogpt", "persimmon"):
        groups = 1
    heads = groups * kv_heads
    head_dim = rng.choice([8, 16, 24, 32])
    hidden = heads * head_dim
    drawn = dict(hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads,
                 intermediate_size=rng.choice([32, 40, 56, 72]), vocab_size=rng.choice([89, 101, 128]))
    if "head_dim" in options:
        drawn["head_dim"] = head_dim
    if FAMILIES[name][0] == "Gemma4":
        drawn["vocab_size_per_layer_input"] = drawn["vocab_size"]
    if options.get("sliding_window"):
        drawn["sliding_window"] = rng.choice([5, 9, 17, 33])
    return drawn


def compare_with_the_author(model, seed):
    """The oracle of RWKV-7 itself against `pip install rwkv`, where it is installed."""
    tokens = torch.randint(0, model.config.vocab_size, (80,), generator=torch.Generator().manual_seed(seed))
    asked = tiny.rwkv7_model.official_logits(model, tokens)
    if asked is None:
        return print("rwkv is not installed: what RWKV-7 is compared with is compared with nothing")
    with torch.no_grad():
        ours = torch.log_softmax(model(tokens), dim=-1)
    difference = (ours - torch.log_softmax(asked, dim=-1)).abs().max().item()
    print(f"rwkv7's oracle beside its author's: {difference:.1e}")
    assert difference < DIFFERENCE_MAX


def make(folder, name, seed):
    kind, options, dtype_name = FAMILIES[name]
    rng = random.Random(f"{name} {seed}")
    options = {**options, **drawn_sizes(name, options, rng)}
    dtype = getattr(torch, dtype_name)
    model = tiny.make_model(kind, options, dtype, seed + 5000)
    if kind == "RWKV7":
        compare_with_the_author(model, seed)
    save_file(tiny.expected_values(model, seed), folder / f"{name}.expected.safetensors")
    tiny.write_folder(folder / name, name, model, dtype)
    return model


def moved_by_rounding(model, seed):
    """What roundings of its weights to neighbours in fp32 move the library's own ln p by."""
    def ln_p(of):
        return torch.log_softmax(tiny.expected_values(of, seed)["logits"].double(), dim=-1)

    asked, moved = ln_p(model), 0.0
    for again in range(5):
        generator = torch.Generator().manual_seed(again)
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            noise = torch.rand(parameter.shape, generator=generator) * 2 - 1
            parameter.data = parameter.data * (1 + noise * torch.finfo(torch.float32).eps)
        moved = max(moved, (ln_p(other) - asked).abs().max().item())
    return moved


def errors(binary, folder, only="Every*:TinyModels.Give*"):
    """|d ln p| by model, and whether all agree."""
    run = subprocess.run([binary, f"--gtest_filter=TinyModels.{only}"], capture_output=True, text=True,
                         env={**os.environ, "HEADRACE_TINY_MODELS": str(folder)})
    found = {}
    for line in run.stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] in FAMILIES and words[1] == "ln_p":
            found[words[0]] = float(words[2])
    return found, run.returncode == 0, run.stdout


def neutral(name, value):
    """What does nothing in the place of a small tensor, or None."""
    if name.endswith(("sinks", "attn_sink", "softmax_offset", "learnable_sink_param")):
        return torch.full_like(value, -30.0)
    if name.endswith(("laurel.linear_left.weight", "per_layer_input_gate.weight", "prediction_coefs.weight", "correction_coefs.weight",
                      "embed_tokens_per_layer.weight", "per_layer_model_projection.weight",
                      "input_mix_weight_down.weight", "input_mix_weight_up.weight", "block_inject_weight.weight", "index_qk_proj.weight", "ple.key_proj.weight",
                      "ple.value_proj.weight", "ple.conv1d.weight", "layernorm.W_down.weight", "layernorm.W_up.weight", "mlp.shared_experts.gate_up_proj.weight", "block_sparse_moe.shared_experts.down_proj.weight")):
        return torch.zeros_like(value)
    if name.endswith(("correct_output_scale", "router.scale", "per_expert_scale", "layer_scalar", "indexer.weights_proj.weight")):
        return torch.ones_like(value)
    if "adapter_list" in name and name.endswith(".1.weight"):  # what a use of a block adds
        return torch.zeros_like(value)
    if name.endswith(("sconv.conv1d.weight", "sconv.weight", "rel_logits_proj.proj")):
        return torch.zeros_like(value)
    if name.endswith("global_scale"):
        return torch.full_like(value, 0.5)
    if name.endswith("ape"):
        return torch.zeros_like(value)
    if name.endswith("tid2eid"):
        return torch.roll(value, 1, 0)
    if name.endswith(("hc_base", "hc_scale", "hc_attn_base", "hc_attn_scale", "hc_ffn_base", "hc_ffn_scale", "hc_head_base", "hc_head_scale", ".D", "bias", "k_a", "r_k", *(f"attn.x_{of}" for of in "rwkvag"), "ffn.x_k")):
        return torch.zeros_like(value)
    if name.endswith(("k_k", "alpha_p", "alpha_n")):  # others
        return torch.flip(value, [0]) if value.numel() > 1 else value + 0.5
    if name.endswith("recurrent_param"):  # states that forget nothing
        return torch.full_like(value, -30.0)
    if name.endswith("A_log"):  # states that forget at once
        return torch.full_like(value, 5.0)
    return torch.ones_like(value) if value.dim() == 1 and "norm" in name else None


# Values that do nothing, or something else, in the place of a key's. Of numbers that only scale, another.
KNOCKED_KEYS = {
    "indexer_budget": 40320, "seed": 7, "output_gate_type": "silu", "ple_layer_ids": [],
    "swiglu_limits": None, "swiglu_limits_shared": None, "moe_router_scaling_factor": 1.0, "partial_rotary_factors": None,
    "log_scaling_alpha": 0.0, "logits_mup_width_multiplier": 1.0, "sliding_window_size": 4096, "scoring_func": "sigmoid", "hc_sinkhorn_iters": 50, "compress_rope_theta": 500.0,
    "use_mem_rope": None, "use_attention_gate": None, "use_sandwich_norm": None, "moe_topk": 1,
    "hc_magnitude": 1.0, "hc_eps": 0.5, "clip_qkv": None, "moe_top_k": 1, "moe_normalize_expert_weights": None, "attention_value_scale": 1.0, "moe_routed_scaling_factor": 1.0, "num_expert_group": 1, "kda_lower_bound": -1.0, "kda_safe_gate": None,
    "window_size": 4096, "rotary_dim": 6, "mup_enabled": None, "route_scale": 1.0, "router_scaling_factor": 1.0, "scale_emb": 1.0, "scale_depth": 3.0,
    "dim_model_base": 96, "scale_embedding": None, "layer_rope_theta": None, "linear_allow_neg_eigval": None, "qk_layernorm": None, "expert_selection_fn": "sigmoid", "shared_expert_combination_strategy": "average",
    "prefix_dense_sliding_window_pattern": 3, "mlp_layer_types": None,
    "sliding_window": 4096, "swiglu_limit": 1e6, "swiglu_alpha": 3.0, "index_topk_blocks": 4000, "index_local_blocks": 1, "sparse_topk_blocks": 4000, "sparse_local_block": 0, "sparse_attention_freq": None, "logit_scale": 1.0, "routed_scaling_factor": 1.0, "norm_topk_prob": None,
    "use_parallel_residual": None, "num_experts_per_tok": 1, "moe_k": 1, "n_group": 1, "partial_rotary_factor": 1.0,
    "rope_theta": 500.0, "factor": 1.0, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
    "logits_scaling": 1.0, "attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 7,
    "layer_types": None, "index_topk": 4096, "indexer_types": None, "moe_renormalize": None, "num_experts_per_token": 1, "no_rope_layers": None, "norm_eps": 0.5, "rms_norm_eps": 0.5, "layer_norm_eps": 0.5,
    "layer_norm_epsilon": 0.5, "norm_epsilon": 0.5, "hidden_act": "gelu",
    "time_step_limit": [0.0, {"__float__": "Infinity"}], "time_step_min": 0.0, "attn_layer_indices": [], "position_embedding_type": "nope",
    "mamba_norm_before_gate": None, "key_multiplier": 1.0, "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0,
    "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0, "mlp_multipliers": [1.0, 1.0], "lm_head_multiplier": 1.0,
    "attention_window_size": 4096, "logits_soft_cap": 1e6, "block_types": ["recurrent"], "alpha": 1.0, "router_jitter_noise": 1e-6,
    "use_post_norm": None, "activation_sparsity_pattern": None, "altup_active_idx": 0, "altup_correct_scale": None, "top_k_experts": 1,
    "attention_chunk_size": None, "floor_scale": 4096, "attn_scale": 0.0, "attn_temperature_tuning": None, "llama_4_scaling_beta": 0.0, "use_qk_norm": None,
    **{f"{part}_{of}_factor": 0.5 for part in ("full_attn", "linear_attn", "mlp") for of in ("alpha", "beta")},
    "ssm_multipliers": [1.0] * 5, "mixer_rms_eps": 1e-6, "time_step_rank": "auto", "expert_layer_offset": 0,
}
# What moves nothing in truth: the norm behind FlexOlmo's mixtures takes their scale away; MiniMax M2 has rotary_dim, too.
# Without a rotation a bias of keys adds the same to all scores of a query.
MOVE_NOTHING = {("flex-olmo", "norm_topk_prob"), ("minimax-m2", "partial_rotary_factor"),
                ("opt", "model.decoder.layers.self_attn.k_proj.bias"), ("biogpt", "biogpt.layers.self_attn.k_proj.bias"), ("biogpt", "layer_norm_eps"),
                ("xglm", "model.layers.self_attn.k_proj.bias"), ("ctrl", "transformer.h.multi_head_attention.Wk.bias"),
                # What other keys say, of the same file.
                ("cohere2-moe", "rope_theta"), ("cohere2-moe-rms", "rope_theta"), ("cohere2-moe-rms", "layer_norm_eps"), ("cohere2-moe-rms", "norm_topk_prob"),
                ("cohere2-moe-rms", "prefix_dense_sliding_window_pattern"), ("granite-swa", "rope_theta"), ("granite-moe-swa", "rope_theta"),
                # Without a norm of gated rows, a rotation, a mixture; and what other classes read.
                ("falcon-h1-plain", "mamba_norm_before_gate"), ("granite-hybrid", "rope_theta"),
                ("granite-hybrid-dense", "num_experts_per_tok"), ("nemotron-h", "num_experts_per_tok"),
                ("nemotron-h", "norm_topk_prob"), ("step35", "use_qk_norm"), *((name, "time_step_min") for name in tiny.MAMBA_FOLDERS if name != "nemotron-h"),
                *((name, "time_step_rank") for name in ("mamba2", "mamba2-biases")),
                *((name, "router_jitter_noise") for name in ("minimax", *tiny.BLOCK_FOLDERS)), ("minimax-m3-hub", "vision_tower.vision_model.pre_layrnorm.weight"),
                # All layers of these are of one type, whatever a file says; those of one have an index each.
                *((name, "layer_types") for name in (*tiny.SPARSE_FOLDERS, "hy-v4", "axk2", "axk2-groups")), ("glm-dsa", "indexer_types"),
                # What the class does not read; what rope_parameters say of each rotation.
                *((name, key) for name in tiny.SHARING_FOLDERS for key in ("norm_topk_prob", "router_jitter_noise")), ("deepseek4-hub", "mtp.enorm.weight"),
                *(("deepseek4", key) for key in ("compress_rope_theta", "rope_theta", "partial_rotary_factor")),
                # Of training alone; what a key switches off.
                ("llama4", "router_jitter_noise"), ("llama4-plain", "router_jitter_noise"),
                ("gemma3n-streams", "model.language_model.layers.altup.correct_output_scale"),
                ("laguna-elements", "sliding_window"), ("ling3", "rope_theta"), ("ling3-unbounded", "rope_theta"), ("ling3-unbounded", "kda_lower_bound"), ("dbrx", "attn_config.rope_theta"),
                # Sizes of latent attention say it; texts are shorter than the context.
                *((name, "partial_rotary_factor") for name in ("mistral4", "mistral4-nested")), ("internlm3", "factor"), ("zamba2-plain", "rope_theta"), ("zamba2-plain", "time_step_min"),
                ("jamba-dense", "num_experts_per_tok"), ("jamba-dense", "expert_layer_offset")}


def knocked(key, value):
    """What is written in the place of a key's value."""
    if key == "layer_types":
        return ["full_attention"] * len(value)
    if key == "layer_rope_theta":
        return [0] * len(value)
    if key == "sparse_attention_freq":
        return [0] * len(value)
    if key == "mlp_layer_types":
        return ["sparse"] * len(value)
    if key == "activation_sparsity_pattern":
        return [0.0] * len(value)
    if key == "no_rope_layers":
        return [1] * len(value)
    return not value if isinstance(value, bool) else KNOCKED_KEYS[key]


def keys_of(config, path=()):
    for key, value in config.items():
        if key in KNOCKED_KEYS and value is not None and value != knocked(key, value):
            yield (*path, key)
        if isinstance(value, dict):
            yield from keys_of(value, (*path, key))


def knock_out(binary, folder, name, difference):
    """Prints what each part moves ln p by; the parts that it says nothing of."""
    weak = []

    def say(part):
        moved = errors(binary, folder, "Give*")[0].get(name)
        if moved is None:  # what is loaded refuses this configuration
            print(f"  {name} without {part}: refused")
            return
        enough = math.isnan(moved) or moved > 100 * difference
        print(f"  {name} without {part}: {moved}{'' if enough else ' WEAK'}", flush=True)
        if not enough:
            weak.append(part)

    path = folder / name / "model.safetensors"
    weights = load_file(path)
    kinds = {}
    for tensor, value in weights.items():
        kind = ".".join(word for word in tensor.split(".") if not word.isdigit())
        if neutral(tensor, value) is not None:
            kinds.setdefault(kind, []).append(tensor)
    for kind, tensors in kinds.items():
        if (name, kind) in MOVE_NOTHING:
            continue
        save_file({**weights, **{tensor: neutral(tensor, weights[tensor]) for tensor in tensors}}, path,
                  metadata={"format": "pt"})
        say(kind)
    save_file(weights, path, metadata={"format": "pt"})
    path = folder / name / "config.json"
    config = json.loads(path.read_text())
    for keys in keys_of(config):
        if {(name, keys[-1]), (name, ".".join(keys))} & MOVE_NOTHING:
            continue
        changed = copy.deepcopy(config)
        inner = changed
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = knocked(keys[-1], inner[keys[-1]])
        path.write_text(json.dumps(changed))
        say(".".join(keys))
    path.write_text(json.dumps(config))
    return weak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--knock-out", action="store_true")
    parser.add_argument("families", nargs="*")
    arguments = parser.parse_intermixed_args()
    wrong, weak = [], []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tiny-models-"))
    try:
        for name in arguments.families or FAMILIES:
            for each in folder.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            model = make(folder, name, arguments.seed)
            found, equal, output = errors(arguments.binary, folder)
            verdict = ""
            if not equal:
                moved = moved_by_rounding(model, arguments.seed)
                is_fault = moved < DIFFERENCE_MAX
                verdict = f" WRONG (a rounding moves it by {moved:.1e})" if is_fault else f" a bad case: a rounding moves it by {moved:.1e}"
                if is_fault:
                    wrong.append(name)
                    print(output)
            print(f"{name} {FAMILIES[name][0]} {found.get(name)}{verdict}", flush=True)
            if arguments.knock_out and equal:
                weak += [f"{name}:{part}" for part in knock_out(arguments.binary, folder, name, found[name])]
    finally:
        shutil.rmtree(folder)
    if weak:
        print(f"weak: {' '.join(weak)}")
    sys.exit(f"wrong: {' '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
