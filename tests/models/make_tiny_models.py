#!/usr/bin/env python3
"""Makes the tiny random models of tests/data/models and what Hugging Face transformers computes
with them: the oracle of src/models/tiny_models_test.cc. Run once by hand, its output is committed:

    pip install torch transformers==5.24.0 safetensors gguf
    python3 tests/models/make_tiny_models.py tests/data/models [NAME ...]

A model is a Hugging Face folder <name>/ or a file <name>.gguf, its weights rounded to 16 bits
first. <name>.expected.safetensors holds, of one prompt: tokens [T], positions [P], hidden
[layers, P, D] after each layer and logits [P, V] at those positions (fp32, eager attention), and
served_length [1], the longest text that is served.
"""
import copy
import json
import math
import pathlib
import re
import shutil
import sys

import gguf
import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

import rwkv7_model
import text_halves

TOKENS = 80  # longer than every window and every original context below
POSITIONS = [0, 5, 18, 35, 57, 79]
WINDOW = 12
ORIGINAL_CONTEXT = 32
SIZES = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
             bos_token_id=1, eos_token_id=2, pad_token_id=0)
HEADS_16 = dict(head_dim=16)


def rope(kind="default", theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


LLAMA3 = rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=ORIGINAL_CONTEXT)
YARN = rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT)


def long_rope(pairs, **more):
    return dict(rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0,
        short_factor=[1.0 + 0.05 * i for i in range(pairs)],
        long_factor=[1.5 + 0.7 * i for i in range(pairs)], **more),
        original_max_position_embeddings=ORIGINAL_CONTEXT)


def gemma3(layers, full, scaling=None):
    types = ["full_attention" if full(i) else "sliding_attention" for i in range(layers)]
    return dict(num_hidden_layers=layers, layer_types=types, sliding_window=WINDOW,
                query_pre_attn_scalar=24, **HEADS_16, rope_parameters=dict(
                    full_attention=dict(rope_theta=1e6, **(scaling or dict(rope_type="default"))),
                    sliding_attention=dict(rope_type="default", rope_theta=1e4)))


GRANITE = dict(embedding_multiplier=6.0, logits_scaling=3.0, residual_multiplier=0.3,
               attention_multiplier=0.2)

# name: class, configuration beside SIZES, element type of the weights
FOLDERS = {
    "llama": ("Llama", dict(**HEADS_16), "bfloat16"),
    "llama-mha-f32": ("Llama", dict(num_key_value_heads=4, tie_word_embeddings=True), "float32"),
    "llama-biases": ("Llama", dict(attention_bias=True, mlp_bias=True, **HEADS_16), "bfloat16"),
    "llama-linear": ("Llama", dict(**rope("linear", factor=4.0), **HEADS_16), "bfloat16"),
    "llama-dynamic": ("Llama", dict(max_position_embeddings=ORIGINAL_CONTEXT, **HEADS_16,
                                    **rope("dynamic", factor=2.0)), "bfloat16"),
    "llama-llama3": ("Llama", dict(**LLAMA3, **HEADS_16), "bfloat16"),
    "llama-yarn": ("Llama", dict(**YARN, **HEADS_16), "float16"),
    "mistral": ("Mistral", dict(sliding_window=WINDOW, **HEADS_16), "bfloat16"),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True), "bfloat16"),
    "qwen2-window": ("Qwen2", dict(num_hidden_layers=3, use_sliding_window=True,
                                   sliding_window=WINDOW, max_window_layers=1), "bfloat16"),
    "qwen3": ("Qwen3", dict(**HEADS_16), "bfloat16"),
    "gemma": ("Gemma", dict(**HEADS_16), "bfloat16"),
    "gemma2": ("Gemma2", dict(num_hidden_layers=3, sliding_window=WINDOW, query_pre_attn_scalar=24,
                              attn_logit_softcapping=5.0, final_logit_softcapping=4.0, **HEADS_16),
               "bfloat16"),
    "gemma3": ("Gemma3", gemma3(3, lambda i: i == 2), "bfloat16"),
    "gemma3-linear": ("Gemma3", gemma3(2, lambda i: i == 1,
                                       dict(rope_type="linear", factor=8.0)), "bfloat16"),
    "phi3": ("Phi3", dict(sliding_window=WINDOW), "bfloat16"),
    "phi3-long": ("Phi3", long_rope(4), "bfloat16"),
    "phi3-partial": ("Phi3", dict(hidden_size=64, intermediate_size=32,
                                  **long_rope(6, partial_rotary_factor=0.75)), "bfloat16"),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4, tie_word_embeddings=False), "bfloat16"),
    "olmo2": ("Olmo2", dict(), "bfloat16"),
    "granite": ("Granite", dict(**GRANITE), "bfloat16"),
    "starcoder2": ("Starcoder2", dict(sliding_window=WINDOW, tie_word_embeddings=True), "bfloat16"),
}

# name: class, configuration, of a GGUF file with F16 matrices
GGUF_FILES = {
    "llama3-gguf": ("Llama", dict(**LLAMA3, **HEADS_16)),
    "llama-biases-gguf": ("Llama", dict(attention_bias=True, **HEADS_16)),
    "qwen2-yarn-gguf": ("Qwen2", dict(**YARN)),
    "qwen3-gguf": ("Qwen3", dict(**HEADS_16)),
    "gemma2-gguf": ("Gemma2", dict(num_hidden_layers=2, sliding_window=WINDOW, head_dim=16,
                                   query_pre_attn_scalar=16, attn_logit_softcapping=5.0,
                                   final_logit_softcapping=4.0)),
    "gemma3-gguf": ("Gemma3", dict(gemma3(6, lambda i: i == 5), query_pre_attn_scalar=16,
                                   hidden_size=16, intermediate_size=32)),
    "phi3-long-gguf": ("Phi3", long_rope(4)),
    "smollm3-gguf": ("SmolLM3", dict(num_hidden_layers=4, hidden_size=16, intermediate_size=32,
                                     tie_word_embeddings=False)),
    "olmo2-gguf": ("Olmo2", dict()),
    "granite-gguf": ("Granite", dict(**GRANITE)),
    "starcoder2-gguf": ("Starcoder2", dict(tie_word_embeddings=True)),
}


def olmo3(**scaling):
    return dict(num_hidden_layers=4, sliding_window=WINDOW, rope_parameters=dict(
        full_attention=scaling, sliding_attention=dict(rope_type="default", rope_theta=10000.0)))


# Behind all others: a model's seed is its place.
LATER_FOLDERS = {"olmo3": ("Olmo3", olmo3(**YARN["rope_parameters"]), "bfloat16")}
LATER_GGUF_FILES = {"olmo3-gguf": ("Olmo3", olmo3(**YARN["rope_parameters"]))}

MIXTRAL = dict(num_local_experts=6, num_experts_per_tok=2, **HEADS_16)
EXPERTS = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32)
SHARED = dict(shared_expert_intermediate_size=64)
QWEN3_MOE = dict(**EXPERTS, norm_topk_prob=True, **HEADS_16)
OLMOE = dict(num_experts=8, num_experts_per_tok=3, intermediate_size=32)
DOTS1 = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, n_shared_experts=2,
             routed_scaling_factor=2.5, n_group=4, topk_group=2, first_k_dense_replace=1, norm_topk_prob=True,
             num_hidden_layers=3, sliding_window=None, **HEADS_16)
GRANITE_MOE = dict(num_local_experts=6, num_experts_per_tok=2, **GRANITE)

# Behind these.
EXPERT_FOLDERS = {
    "mixtral": ("Mixtral", MIXTRAL, "bfloat16"),
    "qwen2-moe": ("Qwen2Moe", dict(num_hidden_layers=3, mlp_only_layers=[1], **EXPERTS, **SHARED), "bfloat16"),
    "qwen3-moe": ("Qwen3Moe", QWEN3_MOE, "bfloat16"),
    "qwen3-moe-fused": ("Qwen3Moe", dict(num_hidden_layers=4, decoder_sparse_step=2, **QWEN3_MOE), "float16"),
    "olmoe": ("Olmoe", OLMOE, "bfloat16"),
    "granite-moe": ("GraniteMoe", GRANITE_MOE, "bfloat16"),
}
EXPERT_GGUF_FILES = {
    "mixtral-gguf": ("Mixtral", MIXTRAL),
    "qwen2-moe-gguf": ("Qwen2Moe", dict(**EXPERTS, **SHARED)),
    "qwen3-moe-gguf": ("Qwen3Moe", QWEN3_MOE),
    "olmoe-gguf": ("Olmoe", OLMOE),
    "granite-moe-gguf": ("GraniteMoe", GRANITE_MOE),
}
ROUTER_FOLDERS = {"dots1": ("Dots1", DOTS1, "bfloat16")}
ROUTER_GGUF_FILES = {"dots1-gguf": ("Dots1", DOTS1)}

# Layers that keep states, behind these.
LFM2 = dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], block_multiple_of=32,
            tie_word_embeddings=True)
DELTA = dict(num_hidden_layers=4, layer_types=["linear_attention"] * 2 + ["full_attention", "linear_attention"],
             linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
             partial_rotary_factor=0.5, **HEADS_16)
STATE_FOLDERS = {
    "lfm2": ("Lfm2", LFM2, "bfloat16"),
    "qwen35": ("Qwen3_5", DELTA, "bfloat16"),
    "qwen35-moe": ("Qwen3_5Moe", dict(**DELTA, **EXPERTS, **SHARED), "bfloat16"),
    "qwen3-next": ("Qwen3Next", dict(**DELTA, **EXPERTS, **SHARED, norm_topk_prob=True), "float16"),
}
STATE_GGUF_FILES = {"lfm2-gguf": ("Lfm2", LFM2)}
DELTA_GGUF_FILES = {
    "qwen35-gguf": ("Qwen3_5", DELTA),
    "qwen35-moe-gguf": ("Qwen3_5Moe", dict(**DELTA, **EXPERTS, **SHARED)),
    "qwen3-next-gguf": ("Qwen3Next", dict(**DELTA, **EXPERTS, **SHARED, norm_topk_prob=True)),
}
LFM2_MOE = dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], num_dense_layers=1,
                routed_scaling_factor=1.5, tie_word_embeddings=True, **EXPERTS)
LATER_STATE_FOLDERS = {"lfm2-moe": ("Lfm2Moe", LFM2_MOE, "bfloat16")}
LATER_STATE_GGUF_FILES = {"lfm2-moe-gguf": ("Lfm2Moe", LFM2_MOE)}

# Latent attention, behind these.
LATENT = dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, num_hidden_layers=3,
              num_key_value_heads=4, moe_intermediate_size=32, num_experts_per_tok=3, n_routed_experts=8)
DEEPSEEK2 = dict(**LATENT, q_lora_rank=None, n_shared_experts=2, first_k_dense_replace=1, n_group=1, topk_group=1,
                 routed_scaling_factor=1.5)
DEEPSEEK3 = dict(**LATENT, q_lora_rank=24, n_shared_experts=1, first_k_dense_replace=1, n_group=4, topk_group=2,
                 routed_scaling_factor=2.5, num_mtp_layers=0,
                 **rope("yarn", factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT, mscale=1.0,
                        mscale_all_dim=1.0))
GLM_LITE = dict(**LATENT, q_lora_rank=24, n_group=1, topk_group=1, routed_scaling_factor=1.8)
LATENT_FOLDERS = {
    "deepseek2": ("DeepseekV2", DEEPSEEK2, "bfloat16"),
    "deepseek3": ("DeepseekV3", DEEPSEEK3, "bfloat16"),
    "glm4-moe-lite": ("Glm4MoeLite", GLM_LITE, "bfloat16"),
}
LATENT_GGUF_FILES = {"deepseek2-gguf": ("DeepseekV2", DEEPSEEK2), "deepseek3-gguf": ("DeepseekV3", DEEPSEEK3)}

# Families that are made of the parts of those before, behind these.
BIASED = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, routed_scaling_factor=1.5)
KIN_FOLDERS = {
    "seed-oss": ("SeedOss", dict(attention_out_bias=True, **HEADS_16), "bfloat16"),
    "exaone4": ("Exaone4", dict(num_hidden_layers=4, sliding_window=WINDOW, **HEADS_16), "bfloat16"),
    "ernie4-5": ("Ernie4_5", dict(use_bias=True, **HEADS_16), "bfloat16"),
    "ernie4-5-moe": ("Ernie4_5_Moe", dict(moe_num_experts=8, moe_k=3, moe_intermediate_size=32, moe_num_shared_experts=2,
                                          moe_layer_start_index=1, tie_word_embeddings=False, **HEADS_16), "bfloat16"),
    "helium": ("Helium", dict(num_attention_heads=2, **HEADS_16), "bfloat16"),
    "glm": ("Glm", dict(**HEADS_16), "bfloat16"),
    "glm4": ("Glm4", dict(**HEADS_16), "bfloat16"),
    "glm4-moe": ("Glm4Moe", dict(use_qk_norm=True, num_mtp_layers=0, attention_bias=True, n_group=2, topk_group=1, **BIASED,
                                 **HEADS_16), "bfloat16"),
    "solar-open": ("SolarOpen", dict(**BIASED, **HEADS_16), "bfloat16"),
    "minimax-m2": ("MiniMaxM2", dict(rotary_dim=8, num_local_experts=8, num_experts_per_tok=3, intermediate_size=32,
                                     **HEADS_16), "bfloat16"),
    "flex-olmo": ("FlexOlmo", dict(num_experts=6, num_experts_per_tok=3, intermediate_size=32), "bfloat16"),
    "granite-moe-shared": ("GraniteMoeShared", dict(**GRANITE_MOE, shared_intermediate_size=40), "bfloat16"),
    "cwm": ("Cwm", dict(num_hidden_layers=3, sliding_window=WINDOW, **HEADS_16), "bfloat16"),
    "vault-gemma": ("VaultGemma", dict(sliding_window=WINDOW, query_pre_attn_scalar=24, attn_logit_softcapping=5.0,
                                       final_logit_softcapping=4.0, **HEADS_16), "bfloat16"),
    "ministral": ("Ministral", dict(sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"], **HEADS_16),
                  "bfloat16"),
    "arcee": ("Arcee", dict(mlp_bias=True, **HEADS_16), "bfloat16"),
    "nemotron": ("Nemotron", dict(**HEADS_16), "bfloat16"),
    "jais2": ("Jais2", dict(**HEADS_16), "bfloat16"),
    "stablelm": ("StableLm", dict(use_qkv_bias=True, hidden_size=64, intermediate_size=32, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)), "bfloat16"),
    "olmo": ("Olmo", dict(), "bfloat16"),
    "gpt-oss": ("GptOss", dict(num_hidden_layers=3, sliding_window=WINDOW, num_local_experts=6, num_experts_per_tok=3,
                               intermediate_size=32, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                               **HEADS_16, **rope("yarn", 10000.0, factor=4.0, truncate=False,
                                                  original_max_position_embeddings=ORIGINAL_CONTEXT)), "bfloat16"),
    "cohere": ("Cohere", dict(attention_bias=True, logit_scale=0.25), "bfloat16"),
    "cohere2": ("Cohere2", dict(num_hidden_layers=4, sliding_window=WINDOW, logit_scale=0.25, **HEADS_16), "bfloat16"),
    "phi": ("Phi", dict(hidden_size=64, intermediate_size=32), "bfloat16"),
    "gpt-neox": ("GPTNeoX", dict(num_key_value_heads=4, hidden_size=64, intermediate_size=32), "bfloat16"),
    "gpt-neox-sequential": ("GPTNeoX", dict(num_key_value_heads=4, use_parallel_residual=False, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)), "bfloat16"),
    "stablelm-parallel": ("StableLm", dict(use_parallel_residual=True, hidden_size=64, intermediate_size=32), "bfloat16"),
}

# Families of GPT-2's time, behind these: of sizes by names of their own.
GPT = dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2)
FALCON = dict(vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=8, max_position_embeddings=256,
              ffn_hidden_size=48, bos_token_id=1, eos_token_id=2)
FALCON_NEW = dict(**FALCON, new_decoder_architecture=True, num_kv_heads=2)
GPT_FOLDERS = {
    "gpt2": ("GPT2", dict(**GPT), "float32"),
    "gpt-bigcode": ("GPTBigCode", dict(**GPT, n_inner=48), "bfloat16"),
    "gpt-bigcode-heads": ("GPTBigCode", dict(**GPT, multi_query=False), "bfloat16"),
    "gpt-neo": ("GPTNeo", dict(vocab_size=96, hidden_size=32, num_layers=3, num_heads=4, window_size=WINDOW,
                               max_position_embeddings=256, attention_types=[[["global", "local"], 1], [["local"], 1]],
                               bos_token_id=1, eos_token_id=2), "bfloat16"),
    "gpt-j": ("GPTJ", dict(**{**GPT, "n_embd": 64}, rotary_dim=8, n_inner=48), "bfloat16"),
    "codegen": ("CodeGen", dict(**{**GPT, "n_embd": 64, "n_head": 8}, rotary_dim=4, n_inner=48), "float16"),
    "opt": ("OPT", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48,
                        word_embed_proj_dim=32, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
                        pad_token_id=0), "float16"),
    "falcon": ("Falcon", FALCON, "bfloat16"),
    "falcon-heads": ("Falcon", dict(**FALCON, multi_query=False, parallel_attn=False, bias=True), "bfloat16"),
    "falcon-new": ("Falcon", FALCON_NEW, "bfloat16"),
    "falcon-one-norm": ("Falcon", dict(**FALCON_NEW, num_ln_in_parallel_attn=1, tie_word_embeddings=False), "bfloat16"),
}
GPT_GGUF_FILES = {
    "gpt2-gguf": ("GPT2", dict(**GPT)),
    "starcoder-gguf": ("GPTBigCode", dict(**GPT, n_inner=48)),
    "falcon-gguf": ("Falcon", FALCON),
    "falcon-new-gguf": ("Falcon", FALCON_NEW),
}

# State spaces, behind these.
MAMBA2 = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=12, n_groups=2,
              chunk_size=16, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LIMITS = dict(time_step_limit=(0.1, 1.5))
HYBRID = dict(num_hidden_layers=3, mamba_n_heads=4, mamba_d_state=12, mamba_n_groups=2, mamba_chunk_size=16)
GRANITE_HYBRID = dict(**HYBRID, **GRANITE, layer_types=["linear_attention", "full_attention", "linear_attention"])
FALCON_H1 = dict(**{**HYBRID, "num_hidden_layers": 2}, mamba_d_ssm=48)
NEMOTRON_H = dict(**HEADS_16, layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"],
                  mamba_num_heads=4, mamba_head_dim=12, ssm_state_size=12, n_groups=2, chunk_size=16)
MAMBA2_FOLDERS = {
    "mamba2": ("Mamba2", dict(**MAMBA2, **LIMITS), "bfloat16"),
    "mamba2-biases": ("Mamba2", dict(**{**MAMBA2, "num_heads": 8, "head_dim": 12, "n_groups": 1, "state_size": 16}, expand=3,
                                     conv_kernel=3, use_bias=True, use_conv_bias=False, tie_word_embeddings=True), "float16"),
    "bamba": ("Bamba", dict(**HYBRID, **LIMITS, attn_layer_indices=[1]), "bfloat16"),
    "granite-hybrid": ("GraniteMoeHybrid", dict(**GRANITE_HYBRID, **LIMITS, num_local_experts=6, num_experts_per_tok=2,
                                                shared_intermediate_size=40), "bfloat16"),
    "granite-hybrid-dense": ("GraniteMoeHybrid", dict(**GRANITE_HYBRID, num_local_experts=0, shared_intermediate_size=40,
                                                      position_embedding_type="rope", tie_word_embeddings=True), "bfloat16"),
    "falcon-h1": ("FalconH1", dict(**FALCON_H1, **LIMITS, mamba_rms_norm=True, embedding_multiplier=2.5, lm_head_multiplier=0.4,
                                   key_multiplier=0.6, attention_in_multiplier=1.3, attention_out_multiplier=0.7,
                                   ssm_in_multiplier=1.2, ssm_out_multiplier=0.8, mlp_multipliers=[0.9, 0.6],
                                   ssm_multipliers=[0.7, 1.4, 0.9, 1.1, 0.6]), "bfloat16"),
    "falcon-h1-plain": ("FalconH1", dict(**FALCON_H1, projectors_bias=True, mamba_proj_bias=True), "bfloat16"),
    "nemotron-h": ("NemotronH", dict(**NEMOTRON_H, mlp_bias=True, use_bias=True, time_step_min=0.3), "bfloat16"),
}
MAMBA_GGUF_FILES = {
    "mamba2-gguf": ("Mamba2", dict(**MAMBA2)),
    "granite-hybrid-gguf": ("GraniteMoeHybrid", dict(**GRANITE_HYBRID, num_local_experts=6, num_experts_per_tok=2,
                                                     shared_intermediate_size=40)),
    "granite-hybrid-dense-gguf": ("GraniteMoeHybrid", dict(**GRANITE_HYBRID, num_local_experts=0, intermediate_size=40,
                                                           shared_intermediate_size=40)),
    "falcon-h1-gguf": ("FalconH1", dict(**FALCON_H1, mamba_rms_norm=True, mamba_norm_before_gate=False, key_multiplier=0.5,
                                        ssm_out_multiplier=0.5, mlp_multipliers=[2.0, 0.5], lm_head_multiplier=0.5)),
    "nemotron-h-gguf": ("NemotronH", dict(**NEMOTRON_H, time_step_min=1e-9)),
}
OWN_SIZES = {kind for kind, *_ in GPT_FOLDERS.values()} | {"Mamba2", "Mamba", "FalconMamba", "RWKV7", "RecurrentGemma", "Bloom", "Mpt",
                                                            "LongcatFlash", "Zamba2", "Dbrx", "BioGpt", "GPTNeoXJapanese", "OpenAIGPT", "CTRL", "XGLM"}

# Mamba's first form, behind these.
MAMBA = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=12, bos_token_id=1, eos_token_id=2, pad_token_id=0)
JAMBA = dict(num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2, expert_layer_period=2, expert_layer_offset=1,
             num_experts=6, num_experts_per_tok=2, intermediate_size=32, mamba_d_state=12, mamba_dt_rank=6)
FIRST_MAMBA_FOLDERS = {
    "mamba": ("Mamba", dict(**MAMBA), "bfloat16"),
    "mamba-biases": ("Mamba", dict(**{**MAMBA, "state_size": 17}, use_bias=True, use_conv_bias=False, conv_kernel=3, time_step_rank=5,
                                   tie_word_embeddings=False), "float16"),
    "falcon-mamba": ("FalconMamba", dict(**MAMBA, mixer_rms_eps=0.1), "bfloat16"),
    "jamba": ("Jamba", dict(**JAMBA, mamba_proj_bias=True), "bfloat16"),
    "nemotron-h-moe": ("NemotronH", dict(**{**NEMOTRON_H, "layers_block_type": [
        "linear_attention", "moe", "full_attention", "mlp", "moe"]}, n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=32, moe_shared_expert_intermediate_size=24, n_group=4, topk_group=2,
        routed_scaling_factor=1.5, norm_topk_prob=True), "bfloat16"),
    "jamba-dense": ("Jamba", dict(**{**JAMBA, "num_experts": 1}), "bfloat16"),
}
FIRST_MAMBA_GGUF_FILES = {
    "mamba-gguf": ("Mamba", dict(**MAMBA)),
    "falcon-mamba-gguf": ("FalconMamba", dict(**MAMBA)),
    "jamba-gguf": ("Jamba", dict(**JAMBA)),
    "nemotron-h-moe-gguf": ("NemotronH", dict(**{**NEMOTRON_H, "layers_block_type": ["linear_attention", "moe", "full_attention"]},
                                              n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
                                              moe_shared_expert_intermediate_size=24, routed_scaling_factor=1.5,
                                              time_step_min=1e-9)),
}
MAMBA_FOLDERS = {**MAMBA2_FOLDERS, **FIRST_MAMBA_FOLDERS}

# Families that came last, behind these.
RWKV7 = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=16, decay_low_rank_dim=5,
             a_low_rank_dim=6, v_low_rank_dim=7, gate_low_rank_dim=9, bos_token_id=1, eos_token_id=2, pad_token_id=0)
GRIFFIN = dict(vocab_size=96, hidden_size=32, intermediate_size=96, num_attention_heads=2, attention_window_size=WINDOW,
               bos_token_id=1, eos_token_id=2, pad_token_id=0)
# Six heads: slopes of eight, of which some are left out.
BLOOM = dict(vocab_size=96, hidden_size=48, n_layer=2, n_head=6, bos_token_id=1, eos_token_id=2)
MPT = dict(vocab_size=96, d_model=48, n_layers=2, n_heads=6, max_seq_len=256, bos_token_id=1, eos_token_id=2)
LAST_FOLDERS = {
    "rwkv7": ("RWKV7", dict(**RWKV7), "bfloat16"),
    "recurrent-gemma": ("RecurrentGemma", dict(**GRIFFIN, num_hidden_layers=4), "bfloat16"),
    "recurrent-gemma-wide": ("RecurrentGemma", dict(**GRIFFIN, num_hidden_layers=3, num_key_value_heads=1, lru_width=48, conv1d_width=3,
                                                    block_types=["attention", "recurrent"], logits_soft_cap=8.0), "float32"),
    "bloom": ("Bloom", BLOOM, "bfloat16"),
    "mpt": ("Mpt", MPT, "bfloat16"),
    "apertus": ("Apertus", dict(**LLAMA3, **HEADS_16), "bfloat16"),
    "hunyuan": ("HunYuanDenseV1", dict(attention_bias=True, **HEADS_16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0)), "bfloat16"),
    "hunyuan-moe": ("HunYuanMoEV1", dict(num_experts=6, moe_topk=2, **HEADS_16), "bfloat16"),
    "hyperclovax": ("HyperCLOVAX", dict(**GRANITE, **HEADS_16), "bfloat16"),
    "hyperclovax-plain": ("HyperCLOVAX", dict(**{**GRANITE, "attention_multiplier": None}, use_post_norm=False), "bfloat16"),
    "phimoe": ("Phimoe", dict(num_local_experts=6, intermediate_size=32, router_jitter_noise=0.1, attention_bias=True,
                              lm_head_bias=True), "bfloat16"),
    "exaone-moe": ("ExaoneMoe", dict(num_hidden_layers=4, sliding_window=WINDOW, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32,
                                     num_shared_experts=1, n_group=2, topk_group=1, routed_scaling_factor=1.5, first_k_dense_replace=1,
                                     **HEADS_16), "bfloat16"),
}
# llama.cpp knows one eps of heads, 64e-5.
LAST_GGUF_FILES = {
    "rwkv7-gguf": ("RWKV7", dict(**RWKV7, norm_eps=4e-5)),
    "bloom-gguf": ("Bloom", BLOOM),
    "mpt-gguf": ("Mpt", MPT),
    "hunyuan-gguf": ("HunYuanDenseV1", dict(**HEADS_16)),
    "hunyuan-moe-gguf": ("HunYuanMoEV1", dict(num_experts=6, moe_topk=2, **HEADS_16)),
}

# And those of layers that read more than rows, behind these.
def kinds_of_layers(letters):
    return [{"s": "sliding_attention", "f": "full_attention"}[letter] for letter in letters]


GEMMA4 = dict(num_hidden_layers=6, layer_types=kinds_of_layers("sfssff"), sliding_window=WINDOW, global_head_dim=32, num_key_value_heads=2,
              vocab_size_per_layer_input=96, hidden_size_per_layer_input=8, final_logit_softcapping=4.0, **HEADS_16)
GEMMA4_PLAIN = dict(num_hidden_layers=3, layer_types=kinds_of_layers("ssf"), sliding_window=WINDOW, global_head_dim=32, num_key_value_heads=2,
                    hidden_size_per_layer_input=0, vocab_size_per_layer_input=96, attention_k_eq_v=True, num_global_key_value_heads=1, **HEADS_16)
GEMMA4_MOE = dict(**GEMMA4_PLAIN, enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=24)
GEMMA3N = dict(num_hidden_layers=5, layer_types=kinds_of_layers("sfsfs"), sliding_window=WINDOW, hidden_size_per_layer_input=8, laurel_rank=5,
               num_kv_shared_layers=2, **HEADS_16)
LLAMA4 = dict(num_hidden_layers=4, attention_chunk_size=WINDOW, floor_scale=8, attn_scale=0.3, intermediate_size=32, intermediate_size_mlp=48,
              num_local_experts=6, num_experts_per_tok=2, interleave_moe_layer_step=2, tie_word_embeddings=False, **HEADS_16)
GROWING = dict(**HEADS_16, **rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT, mscale=1.0, mscale_all_dim=1.0,
                                  llama_4_scaling_beta=0.4, beta_fast=32.0, beta_slow=1.0))
NEWEST_FOLDERS = {
    "gemma4": ("Gemma4", dict(**GEMMA4, num_kv_shared_layers=3, use_double_wide_mlp=True), "bfloat16"),
    "gemma4-moe": ("Gemma4", GEMMA4_MOE, "bfloat16"),
    "gemma3n": ("Gemma3n", dict(**GEMMA3N, vocab_size_per_layer_input=80, activation_sparsity_pattern=[0.7, 0.3, 0.0, 0.0, 0.0],
                                final_logit_softcapping=4.0), "bfloat16"),
    "gemma3n-streams": ("Gemma3n", dict(**{**GEMMA3N, "num_hidden_layers": 4, "layer_types": kinds_of_layers("sfsf"), "num_kv_shared_layers": 0}, vocab_size_per_layer_input=96, altup_num_inputs=3,
                                        altup_active_idx=2, altup_correct_scale=False), "float16"),
}
LLAMA4_FOLDERS = {
    "llama4": ("Llama4", LLAMA4, "bfloat16"),
    "llama4-plain": ("Llama4", dict(**{**LLAMA4, "attention_chunk_size": None}, use_qk_norm=False, moe_layers=[0, 3], no_rope_layers=[1, 0, 1, 0]),
                     "float16"),
    "ministral3": ("Ministral3", GROWING, "bfloat16"),
}
# Latent attention of keys that an index chooses. Many of its heads, so that no two keys have the score 0.
INDEX = dict(index_n_heads=12, index_head_dim=16, index_topk=40, q_lora_rank=24, n_shared_experts=1, first_k_dense_replace=1)
DEEPSEEK32 = dict(**LATENT, **INDEX, n_group=4, topk_group=2, routed_scaling_factor=2.5,
                  **rope("yarn", factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT, mscale=1.0, mscale_all_dim=1.0))
GLM_DSA = dict(**LATENT, **INDEX, n_group=1, topk_group=1, routed_scaling_factor=1.8)
SPARSE_FOLDERS = {
    "deepseek32": ("DeepseekV32", DEEPSEEK32, "bfloat16"),
    "glm-dsa": ("GlmMoeDsa", GLM_DSA, "bfloat16"),
    "glm-dsa-shared": ("GlmMoeDsa", {**GLM_DSA, "num_hidden_layers": 4, "indexer_types": ["full", "shared", "full", "shared"]}, "bfloat16"),
}
SPARSE_GGUF_FILES = {"deepseek32-gguf": SPARSE_FOLDERS["deepseek32"][:2], "glm-dsa-gguf": SPARSE_FOLDERS["glm-dsa-shared"][:2]}

# Kimi Delta Attention, and latent attention that does not rotate.
KIMI = dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, num_hidden_layers=4, num_key_value_heads=4, q_lora_rank=None,
            moe_intermediate_size=32, num_experts_per_tok=3, num_local_experts=8, n_shared_experts=1, n_group=1, topk_group=1, routed_scaling_factor=1.8,
            linear_head_dim=12, linear_num_heads=3, linear_conv_kernel_dim=4, mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
            layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"])
KIMI_FOLDERS = {
    "kimi-linear": ("KimiLinear", KIMI, "bfloat16"),
    "kimi-linear-groups": ("KimiLinear", {**KIMI, "q_lora_rank": 24, "n_group": 4, "topk_group": 2, "norm_topk_prob": False, "linear_head_dim": 40,
                                          "linear_num_heads": 1, "linear_conv_kernel_dim": 3, "num_hidden_layers": 3,
                                          "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                                          "mlp_layer_types": ["dense", "sparse", "sparse"]}, "bfloat16"),
}
# llama.cpp knows as many heads of both kinds, and no groups.
KIMI_GGUF_FILES = {"kimi-linear-gguf": ("KimiLinear", {**KIMI, "linear_num_heads": 4})}

# Families that came later, behind these.
MINIMAX = dict(num_local_experts=6, num_experts_per_tok=2, block_size=16, num_hidden_layers=4, full_attn_alpha_factor=2.5, full_attn_beta_factor=0.8,
               linear_attn_alpha_factor=3.0, linear_attn_beta_factor=1.2, mlp_alpha_factor=2.0, mlp_beta_factor=1.1,
               layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"], **HEADS_16)
AFMOE = dict(num_hidden_layers=4, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, num_shared_experts=2, route_scale=1.5, num_dense_layers=1,
             sliding_window=WINDOW, mup_enabled=True, **HEADS_16)
MELLUM = dict(num_hidden_layers=3, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, sliding_window=WINDOW,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"], **HEADS_16, rope_parameters=dict(
                  full_attention=YARN["rope_parameters"], sliding_attention=dict(rope_type="default", rope_theta=1000.0)))
HYV3 = dict(num_hidden_layers=3, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, num_shared_experts=1, **HEADS_16)
COHERE2_MOE = dict(num_hidden_layers=4, num_experts=8, num_experts_per_tok=3, num_shared_experts=1, expert_selection_fn="sigmoid", sliding_window=WINDOW,
                   layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], intermediate_size=24,
                   mlp_layer_types=["dense", "sparse", "sparse", "sparse"], prefix_dense_intermediate_size=40, logit_scale=0.25, **HEADS_16)
GRANITE_SWA = dict(num_hidden_layers=4, sliding_window=WINDOW, layer_rope_theta=[0, 10000.0, 500.0, 500.0], **GRANITE)
MINICPM3 = dict(kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, num_key_value_heads=4, scale_emb=3.0, scale_depth=1.1, dim_model_base=12)
YOUTU = dict(kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, num_key_value_heads=4)
BIOGPT = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256,
              bos_token_id=1, eos_token_id=2, pad_token_id=0)
# As many channels of keys as of values: the library writes convolutions as three equal parts.
OLMO_HYBRID = dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
                   linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=6)
MORE_FOLDERS = {
    "minimax": ("MiniMax", MINIMAX, "bfloat16"),
    "afmoe": ("Afmoe", AFMOE, "bfloat16"),
    "mellum": ("Mellum", MELLUM, "bfloat16"),
    "hy-v3": ("HYV3", HYV3, "bfloat16"),
    "cohere2-moe": ("Cohere2Moe", COHERE2_MOE, "bfloat16"),
    "cohere2-moe-rms": ("Cohere2Moe", {**COHERE2_MOE, "mlp_layer_types": ["dense", "dense", "sparse", "sparse"], "rms_norm_eps": 1e-5,
                                       "prefix_dense_sliding_window_pattern": 2, "expert_selection_fn": "softmax",
                                       "shared_expert_combination_strategy": "sum"}, "bfloat16"),
    "nanochat": ("NanoChat", dict(final_logit_softcapping=4.0), "bfloat16"),
    "granite-swa": ("GraniteSWA", dict(**GRANITE_SWA, mlp_bias=True, attention_bias=True), "bfloat16"),
    "granite-moe-swa": ("GraniteMoeSWA", dict(**GRANITE_SWA, num_local_experts=6, num_experts_per_tok=2, shared_intermediate_size=40), "bfloat16"),
    "minicpm3": ("MiniCPM3", dict(**MINICPM3, **long_rope(4)), "bfloat16"),
    "youtu": ("Youtu", YOUTU, "bfloat16"),
    "biogpt": ("BioGpt", BIOGPT, "float16"),
    "openai-gpt": ("OpenAIGPT", GPT, "float32"),
    "ctrl": ("CTRL", dict(**GPT, dff=48), "bfloat16"),
    "xglm": ("XGLM", dict(vocab_size=96, d_model=32, num_layers=2, attention_heads=4, ffn_dim=48, max_position_embeddings=256, bos_token_id=1,
                          eos_token_id=2, pad_token_id=0), "float16"),
    "olmo-hybrid": ("OlmoHybrid", OLMO_HYBRID, "bfloat16"),
    "olmo-hybrid-nope": ("OlmoHybrid", dict(**OLMO_HYBRID, linear_allow_neg_eigval=False, rope_parameters=dict(rope_type="default", rope_theta=None)),
                         "bfloat16"),
    "gpt-neox-japanese": ("GPTNeoXJapanese", dict(**{**BIOGPT, "hidden_size": 64}, intermediate_multiple_size=1), "bfloat16"),
    "persimmon": ("Persimmon", dict(num_key_value_heads=4, hidden_size=64), "bfloat16"),
    "cohere-norms": ("Cohere", dict(use_qk_norm=True, logit_scale=0.25), "bfloat16"),
}

def of_kinds(full, **sliding):
    return dict(rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_type="default", **sliding)))


# And behind these: appended one by one.
MIMO2 = dict(num_hidden_layers=4, layer_types=kinds_of_layers("fssf"), mlp_layer_types=["dense", "sparse", "sparse", "sparse"], num_key_value_heads=1,
             head_dim=24, v_head_dim=16, sliding_window=WINDOW, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_group=2,
             topk_group=1, routed_scaling_factor=1.5, **of_kinds(dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.334),
                                                                 rope_theta=500.0, partial_rotary_factor=0.5))
LAGUNA = dict(num_hidden_layers=4, layer_types=kinds_of_layers("fssf"), num_attention_heads_per_layer=[4, 6, 6, 4], sliding_window=WINDOW, num_experts=8,
              num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=40, moe_routed_scaling_factor=1.5, **HEADS_16,
              **of_kinds(dict(**YARN["rope_parameters"], partial_rotary_factor=0.5), rope_theta=500.0, partial_rotary_factor=1.0))
# Sizes of heads are those of layers that attend, in the library's configuration.
LING3 = dict(num_hidden_layers=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"], kv_lora_rank=16,
             qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, head_dim=12, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=3,
             n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=1.8, first_k_dense_replace=1, moe_intermediate_size=24, num_mtp_layers=0,
             mlp_layer_types=["dense", "sparse", "sparse", "sparse"])
AXK1 = dict(LATENT, q_lora_rank=24, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, mlp_layer_types=["dense", "sparse", "sparse"])
DBRX = dict(vocab_size=96, d_model=32, n_heads=4, n_layers=2, max_seq_len=256, attn_config=dict(kv_n_heads=2, clip_qkv=1.5, rope_theta=10000.0),
            ffn_config=dict(ffn_hidden_size=24, moe_num_experts=6, moe_top_k=3), bos_token_id=1, eos_token_id=2, pad_token_id=0)
HY_V4 = {**LATENT, **INDEX, "num_hidden_layers": 4, "moe_intermediate_size": 24, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "indexer_types": ["full", "full", "shared", "full"],
         "routed_scaling_factor": 1.8, "hc_mult": 3, "hc_magnitude": 1.5, "hc_eps": 0.02, "swiglu_limit": 1.5, "index_topk": 48}
del HY_V4["first_k_dense_replace"]
LATEST_FOLDERS = {
    "mimo2": ("MiMoV2Flash", MIMO2, "bfloat16"),
    "laguna": ("Laguna", LAGUNA, "bfloat16"),
    "laguna-elements": ("Laguna", {**LAGUNA, "num_hidden_layers": 2, "layer_types": kinds_of_layers("ff"), "num_attention_heads_per_layer": None,
                                   "gating": "per-element", "attention_bias": True, "mlp_layer_types": ["dense", "sparse"]}, "bfloat16"),
    "ling3": ("BailingHybrid", LING3, "bfloat16"),
    "ling3-unbounded": ("BailingHybrid", {**LING3, "kda_safe_gate": False, "n_group": 1, "topk_group": 1, "q_lora_rank": 24, "short_conv_kernel_size": 3, "num_hidden_layers": 2,
                                          "layer_types": ["linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse"]}, "bfloat16"),
    "bitnet": ("BitNet", dict(), "bfloat16"),
    "axk1": ("AXK1", AXK1, "bfloat16"),
    "dbrx": ("Dbrx", DBRX, "bfloat16"),
    "hy-v4": ("HYV4", HY_V4, "bfloat16"),
}
# And behind these.
LONGCAT = dict(vocab_size=96, hidden_size=32, num_layers=2, num_attention_heads=4, ffn_hidden_size=48, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12,
               qk_rope_head_dim=8, head_dim=8, v_head_dim=10, moe_topk=4, n_routed_experts=6, zero_expert_num=3, expert_ffn_hidden_size=24, routed_scaling_factor=2.5,
               max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
MISTRAL4 = dict(**LATENT, q_lora_rank=24, n_shared_experts=1, first_k_dense_replace=1, n_group=2, topk_group=1, routed_scaling_factor=1.5,
                **rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5))
LFM3 = dict(num_hidden_layers=4, layer_types=["conv", "sliding_attention", "full_attention", "conv"], sliding_window=WINDOW, conv_L_cache=5, **HEADS_16)
FLINT = dict(num_hidden_layers=4, layer_types=kinds_of_layers("fssf"), mlp_only_layers=[0], num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
             shared_expert_intermediate_size=40, sliding_window=WINDOW, **HEADS_16)
KOLIBRI = dict(num_hidden_layers=3, layer_types=kinds_of_layers("ssf"), num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
               shared_expert_intermediate_size=40, sliding_window=WINDOW, norm_topk_prob=True, **HEADS_16)
FURTHER_FOLDERS = {
    "longcat": ("LongcatFlash", LONGCAT, "bfloat16"),
    "lfm3": ("Lfm3", LFM3, "bfloat16"),
    "lfm3-plain": ("Lfm3", {**LFM3, "use_sandwich_norm": False, "use_attention_gate": False, "attention_bias": True, "tie_word_embeddings": False, "num_hidden_layers": 3,
                            "layer_types": ["full_attention", "conv", "sliding_attention"], **of_kinds(dict(rope_type="default", rope_theta=10000.0), rope_theta=500.0)}, "bfloat16"),
    "mistral4": ("Mistral4", MISTRAL4, "bfloat16"),
    "mistral4-nested": ("Mistral4", {**MISTRAL4, "q_lora_rank": None, "num_hidden_layers": 2, "rope_interleave": False}, "bfloat16"),
    "internlm3": ("InternLM3", dict(attention_bias=True, mlp_bias=True, **HEADS_16, **rope("dynamic", factor=2.0)), "bfloat16"),
    "iquest-coder": ("IQuestCoder", dict(**HEADS_16), "bfloat16"),
    "sarvam-moe": ("SarvamMoE", dict(**BIASED, attention_bias=True, n_shared_experts=1, first_k_dense_replace=1, n_group=2, topk_group=1, **HEADS_16), "bfloat16"),
    "sarvam-mla": ("SarvamMLA", dict(**LATENT, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.5, **YARN), "bfloat16"),
    "flint": ("Flint", FLINT, "bfloat16"),
    "kolibri1": ("Kolibri1", KOLIBRI, "bfloat16"),
}
ZAMBA2 = dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, layers_block_type=["linear_attention", "hybrid", "hybrid", "hybrid"],
              num_mem_blocks=2, n_mamba_heads=4, mamba_d_state=12, mamba_ngroups=2, mamba_expand=2, mamba_d_conv=4, chunk_size=16, intermediate_size=48, num_attention_heads=4,
              num_key_value_heads=4, adapter_rank=6, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
FURTHER_FOLDERS["qwen2-5-vl"] = ("Qwen2", dict(use_sliding_window=False), "bfloat16")
FURTHER_FOLDERS["qwen3-vl"] = ("Qwen3", dict(**HEADS_16, tie_word_embeddings=True), "bfloat16")
FURTHER_FOLDERS["kimi-k25"] = ("DeepseekV3", DEEPSEEK3, "bfloat16")
FURTHER_FOLDERS["gemma4-unified"] = ("Gemma4Unified", {**HEADS_16, "num_hidden_layers": 4, "layer_types": kinds_of_layers("ssff"), "sliding_window": WINDOW,
                                                       "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True}, "bfloat16")
FURTHER_FOLDERS["zamba2"] = ("Zamba2", {**ZAMBA2, "use_shared_attention_adapter": True, "use_mem_rope": True, "time_step_min": 0.3}, "bfloat16")
FURTHER_FOLDERS["zamba2-plain"] = ("Zamba2", {**ZAMBA2, "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"], "num_mem_blocks": 1,
                                              "add_bias_linear": True, "mamba_ngroups": 1, "num_attention_heads": 2, "num_key_value_heads": 2}, "bfloat16")
# And behind these.
STEP = dict(num_hidden_layers=4, layer_types=kinds_of_layers("fssf"), mlp_layer_types=["dense", "sparse", "dense", "sparse"], num_sliding_attention_heads=6,
            sliding_window=WINDOW, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, share_expert_dim=40, moe_router_scaling_factor=1.5,
            swiglu_limits=[0.0, 1.0, 0.0, 0.4], swiglu_limits_shared=[0.6, 0.0, 0.9, 1.2], **HEADS_16,
            **of_kinds(dict(rope_type="llama3", rope_theta=50000.0, partial_rotary_factor=0.5, factor=4.0, low_freq_factor=1.0, high_freq_factor=8.0,
                            original_max_position_embeddings=ORIGINAL_CONTEXT), rope_theta=500.0, partial_rotary_factor=1.0))
# Sections are of pairs that rotate: three positions of a token, which of text are one.
def of_three_positions(sections, **more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=sections, **more))


GLM4V_MOE = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_group=2, topk_group=1, routed_scaling_factor=1.5, first_k_dense_replace=1,
                 num_hidden_layers=3, **HEADS_16, **of_three_positions([1, 1, 2], partial_rotary_factor=0.5))
SEEING_FOLDERS = {
    "step35": ("Step3p5", STEP, "bfloat16"),
    "step37": ("Step3p5", {**STEP, "num_hidden_layers": 3, "layer_types": kinds_of_layers("sfs"), "mlp_layer_types": ["dense", "sparse", "sparse"], "attention_bias": True,
                           "num_sliding_attention_heads": None, "swiglu_limits": None, "swiglu_limits_shared": [None, 0.5, None], "query_pre_attn_scalar": 24,
                           **of_kinds(dict(**YARN["rope_parameters"], partial_rotary_factor=0.5), rope_theta=500.0, partial_rotary_factor=0.25)}, "bfloat16"),
    "qwen3-vl-moe": ("Qwen3VLMoe", dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, num_hidden_layers=3, mlp_only_layers=[1],
                                        tie_word_embeddings=True, **HEADS_16, **of_three_positions([2, 3, 3], mrope_interleaved=True)), "bfloat16"),
    "qwen3-vl-moe-saved": ("Qwen3VLMoe", dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, tie_word_embeddings=False, **HEADS_16,
                                              **of_three_positions([2, 3, 3])), "bfloat16"),
    "glm4v": ("Glm4v", dict(hidden_size=64, **of_three_positions([1, 1, 2], partial_rotary_factor=0.5)), "bfloat16"),
    "glm4v-moe": ("Glm4vMoe", GLM4V_MOE, "bfloat16"),
}
# The text halves of models that see; the names of theirs that files have, with the parts of a head that turn by place and time.
SEEING_GGUF_FILES = {"qwen2-vl-gguf": ("Qwen2", dict()), "qwen3-vl-gguf": ("Qwen3", dict(**HEADS_16, tie_word_embeddings=True)),
                     "qwen3-vl-moe-gguf": ("Qwen3Moe", QWEN3_MOE)}
SEEING_ARCHITECTURES = {"qwen2-vl-gguf": "qwen2vl", "qwen3-vl-gguf": "qwen3vl", "qwen3-vl-moe-gguf": "qwen3vlmoe"}
FURTHER_GGUF_FILES = {"mistral4-gguf": ("Mistral4", MISTRAL4), **SEEING_GGUF_FILES}
# Blocks of keys that are parts of pages, whole pages, and several.
MINIMAX_M3 = dict(num_hidden_layers=4, layer_types=["full_attention", *["minimax_m3_sparse"] * 3], mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
                  head_dim=16, rotary_dim=8, intermediate_size=24, dense_intermediate_size=48, shared_intermediate_size=40, num_local_experts=8, num_experts_per_tok=3,
                  swiglu_alpha=1.1, swiglu_limit=1.5, index_n_heads=2, index_head_dim=12, index_block_size=4, index_topk_blocks=4, index_local_blocks=2,
                  **rope(partial_rotary_factor=0.5))
BLOCK_FOLDERS = {
    "minimax-m3": ("MiniMaxM3VL", MINIMAX_M3, "bfloat16"),
    "minimax-m3-hub": ("MiniMaxM3VL", {**MINIMAX_M3, "num_hidden_layers": 3, "layer_types": ["full_attention", *["minimax_m3_sparse"] * 2],
                                                     "mlp_layer_types": ["dense", "sparse", "sparse"], "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
                                                     "index_block_size": 16, "index_topk_blocks": 2, "index_local_blocks": 1}, "bfloat16"),
}
# Keys that 4 tokens share, parts of a page, and 32, more than a page; of the hub's spelling numbers that no page is a multiple of.
DEEPSEEK4 = dict(num_hidden_layers=4, layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
                 compress_rates=dict(compressed_sparse_attention=4, heavily_compressed_attention=32), mlp_layer_types=["hash_moe", "moe", "hash_moe", "moe"],
                 num_key_value_heads=1, head_dim=16, partial_rotary_factor=0.5, q_lora_rank=24, intermediate_size=16, n_routed_experts=6, num_experts_per_tok=3,
                 sliding_window=WINDOW, o_groups=2, o_lora_rank=12, index_n_heads=9, index_head_dim=16, index_topk=5, hc_mult=3, hc_sinkhorn_iters=3, swiglu_limit=1.0,
                 rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT))
SHARING_FOLDERS = {
    "deepseek4": ("DeepseekV4", DEEPSEEK4, "bfloat16"),
    "deepseek4-hub": ("DeepseekV4", {**DEEPSEEK4, "num_hidden_layers": 3, "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention", "sliding_attention"],
                                     "compress_rates": dict(compressed_sparse_attention=3, heavily_compressed_attention=10), "mlp_layer_types": ["hash_moe", "moe", "moe"],
                                     "index_head_dim": 10, "index_topk": 7, "hc_mult": 2, "hc_sinkhorn_iters": 20}, "bfloat16"),
}
# Rows and heads that have gates.
AXK2 = dict(LATENT, index_n_heads=12, index_head_dim=16, index_topk=40, q_lora_rank=24, gated_norm_rank=6, n_shared_experts=1, routed_scaling_factor=2.5,
            mlp_layer_types=["dense", "sparse", "sparse"])
# Blocks that are parts of pages, and pages.
QWEN4 = dict(num_hidden_layers=4, layer_types=["linear_attention", "linear_attention", "indexed_attention", "linear_attention"], num_experts=8, num_experts_per_tok=3,
             moe_intermediate_size=24, shared_expert_intermediate_size=40, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
             linear_value_head_dim=10, linear_conv_kernel_dim=4, hc_count=3, hc_lowrank=10, ple_layer_ids=[1, 4], ple_embed_dim=24, ple_conv_kernel_size=3,
             ngram_size=3, heads_per_ngram=2, ngram_vocab_size_base=50, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=3, indexer_n_heads=9, indexer_kv_heads=1,
             indexer_head_dim=12, indexer_budget=16, indexer_compress_ratio=4, **HEADS_16, **rope(partial_rotary_factor=0.5))
GATED_FOLDERS = {
    "axk2": ("AXK2", {**AXK2, **rope("yarn", factor=4.0, original_max_position_embeddings=ORIGINAL_CONTEXT, mscale=1.0, mscale_all_dim=1.0)}, "bfloat16"),
    "axk2-groups": ("AXK2", {**AXK2, "num_hidden_layers": 2, "mlp_layer_types": ["sparse", "dense"], "n_group": 4, "topk_group": 2, "index_topk": 4096}, "bfloat16"),
    "qwen4-exp": ("Qwen4Exp", QWEN4, "bfloat16"),
    "qwen4-exp-vl": ("Qwen4Exp", {**QWEN4, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "hc_count": 2, "ple_layer_ids": [1],
                                  "ngram_size": 2, "heads_per_ngram": 3, "ple_conv_kernel_size": 4, "output_gate_type": "sigmoid", "indexer_budget": 32,
                                  "indexer_compress_ratio": 16, "norm_topk_prob": False, "eos_token_id": [43, 2],
                                  **of_three_positions([2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5)}, "bfloat16"),
}
# Profiles that end within the text and behind the window; a base of the factor of queries that texts reach.
INKLING = dict(num_hidden_layers=4, layer_types=["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"], mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
               head_dim=16, swa_head_dim=16, swa_num_attention_heads=4, swa_num_key_value_heads=4, sliding_window_size=WINDOW, d_rel=4, rel_extent=21,
               log_scaling_n_floor=16, log_scaling_alpha=0.4, moe_intermediate_size=24, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2,
               route_scale=2.5, logits_mup_width_multiplier=0.5, unpadded_vocab_size=90)
# Whose outputs are fewer than their tokens.
PRUNED_FOLDERS = {
    "inkling": ("Inkling", INKLING, "bfloat16"),
    "inkling-hub": ("Inkling", {**INKLING, "num_hidden_layers": 3, "layer_types": ["hybrid", "hybrid_sliding", "hybrid"], "mlp_layer_types": ["dense", "dense", "sparse"],
                                "swa_num_attention_heads": 6, "swa_num_key_value_heads": 2, "swa_head_dim": 8, "d_rel": 3, "rel_extent": 90, "conv_kernel_size": 3,
                                "log_scaling_n_floor": None, "n_shared_experts": 1, "unpadded_vocab_size": None}, "bfloat16"),
    "apertus15": ("Apertus1p5Text", dict(output_vocab_size=80, **LLAMA3, **HEADS_16), "bfloat16"),
    "apertus15-nested": ("Apertus1p5Text", dict(num_hidden_layers=3, output_vocab_size=71, attention_bias=True, num_key_value_heads=1, **HEADS_16, **rope()), "bfloat16"),
}
# llama.cpp knows one factor of rows, and 1 of branches.
MORE_GGUF_FILES = {
    "minimax-gguf": ("MiniMax", {**MINIMAX, **{f"{part}_alpha_factor": 3.0 for part in ("full_attn", "linear_attn", "mlp")},
                                 **{f"{part}_beta_factor": 1.0 for part in ("full_attn", "linear_attn", "mlp")}}),
}

# Of GGUF files llama.cpp takes the sizes of chunks and steps for granted.
LLAMA4_GGUF_FILES = {"ministral3-gguf": ("Ministral3", GROWING),
                     "llama4-gguf": ("Llama4", dict(**{**LLAMA4, "attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1}))}
NEWEST_GGUF_FILES = {
    "gemma4-gguf": ("Gemma4", dict(**{**GEMMA4, "layer_types": kinds_of_layers("sffsff")}, num_kv_shared_layers=3, use_double_wide_mlp=True)),
    "gemma4-moe-gguf": ("Gemma4", GEMMA4_MOE),
    "gemma3n-gguf": ("Gemma3n", dict(**GEMMA3N, vocab_size_per_layer_input=96, activation_sparsity_pattern=[0.7, 0.3, 0.0, 0.0, 0.0])),
}

# Experts' tensors as the library has them in memory, not as it writes them.
FUSED = {"qwen3-moe-fused", "qwen3-vl-moe-saved"}
# Configurations that are written as transformers 4 did.
IN_THE_OLD_SPELLING = {"llama-linear", "llama-llama3", "llama-yarn", "gemma3-linear", "phi3-long",
                       "mistral", "granite"}
# Wrapped as the text half of a model that also sees.
NESTED = {"gemma3-linear": ("Gemma3", "language_model.model."), "gemma4-moe": ("Gemma4", "model.language_model."),
          "gemma3n-streams": ("Gemma3n", "model.language_model."), "llama4-plain": ("Llama4", "language_model.model."),
          "mistral4-nested": ("Mistral3", "model.language_model."), "qwen2-5-vl": ("Qwen2_5_VL", "model.language_model."),
          "minimax-m3-hub": ("MiniMaxM3Sparse", "language_model.model."), "apertus15-nested": ("Apertus1p5", "model.language_model."), "qwen3-vl": ("Qwen3VL", "model.language_model."), "kimi-k25": ("KimiK25", "language_model.model."),
          "qwen4-exp-vl": ("Qwen4Exp", "model.language_model."), "step37": ("Step3p7", "model."), "qwen3-vl-moe": ("Qwen3VLMoe", "model.language_model."), "qwen3-vl-moe-saved": ("Qwen3VLMoe", "model.language_model."),
          "glm4v": ("Glm4v", "model.language_model."), "glm4v-moe": ("Glm4vMoe", "model.language_model.")}
# What the hub's files call their class, and some of its numbers, where the library has another class for it.
HUB_CLASSES = {"InternLM3": {"attention_bias": "qkv_bias", "mlp_bias": "bias"}, "IQuestCoder": {},
               "SarvamMoE": {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"},
               "SarvamMLA": {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts"}}


BIASED_KINDS = ("kolibri1", "flint", "sarvam_moe", "sarvam_mla", "glm4_moe", "solar_open", "minimax_m2", "exaone_moe", "afmoe", "hy_v3", "mimo_v2_flash", "laguna", "bailing_hybrid", "axk1", "axk2", "hy_v4", "step3p5", "glm4v_moe_text", "minimax_m3_vl_text", "deepseek_v4", "inkling_text")


def random_weights(model, seed):
    """Weights that make every part matter: scores of a few units, norms off 1, biases off 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("w_lora.lora.2.bias"):  # RWKV's likewise
            parameter.data = noise * 2 - 4
        elif model.config.model_type == "bailing_hybrid" and name.endswith(("A_log", "dt_bias")):  # decays between a floor and 1
            parameter.data = noise * 0.5 + 0.5 if name.endswith("A_log") else noise - 1.5
        elif name.endswith("A_log"):  # of rates at which a state forgets: some remember all of the text
            parameter.data = noise - 2.0
        elif name.endswith(("gate_bias", "recurrent_param")):  # of an RG-LRU: some channels remember all of the text
            parameter.data = noise - 3.0 if name.endswith("recurrent_param") else noise * 0.3
        elif parameter.dim() > 1:
            gain = 1.5 if "embed" not in name else 1.0
            # The last expert that is chosen has a small share, so that it matters little which of two nearly equal
            # ones a rounding makes it.
            router = name.endswith(("router.proj.weight", "mlp.gate.weight", "router.weight", "feed_forward.gate.weight", "mlp.router.weight", "router.gate.weight", "router.layer.weight", "router.classifier.weight"))
            if router and model.config.model_type not in ("dots1", "lfm2_moe", "deepseek_v3", "glm4_moe_lite", "deepseek_v32", "glm_moe_dsa", "kimi_linear", *BIASED_KINDS):
                gain = 6.0
            if model.config.model_type == "zamba2" and ("adapter_list" in name or name.endswith(("q_proj.weight", "k_proj.weight", "linear.weight"))):
                gain = 0.3 if name.endswith("linear.weight") else 0.4  # of what comes on top of rows, and of scores that a smaller number divides
            parameter.data = noise * gain / math.sqrt(parameter.shape[-1])
            if name.endswith("experts.down_proj") and model.config.model_type in ("flint", "kolibri1"):
                parameter.data *= 0.2  # a rounding chooses other experts, as nothing but their scores does
            if name.endswith("experts.gate_up_proj") and model.config.model_type == "gpt_oss":
                parameter.data *= 2  # so that some gates and ups reach the clamp
            if "gate_up_proj" in name and getattr(model.config, "swiglu_alpha", 0) == 1.702 and model.config.model_type == "minimax_m3_vl_text":
                parameter.data *= 2  # likewise
            if name.endswith("e_score_correction_bias"):
                parameter.data = noise * 0.02
        elif name.endswith(("hc.scale", "hc_scale")):
            parameter.data = 1 + noise * 0.2
        elif name.endswith(("bias", "hc.base", "hc_base")):
            parameter.data = noise * 0.3
        elif name.endswith("sinks"):  # which the library draws, too
            parameter.data = noise
        else:
            parameter.data = parameter.data + noise * 0.2
        if name.endswith(("q_norm.weight", "k_norm.weight")) and model.config.model_type in ("gemma3n_text", "gemma4_text", "gemma4_unified_text"):
            parameter.data *= 0.5  # of scores that nothing else scales
        if name.endswith(("q_norm.weight", "k_norm.weight")) and model.config.model_type == "inkling_text":
            parameter.data *= 1.5  # of scores that the size of heads divides, not its root
        if name.endswith("correct_output_scale"):  # which the library begins with 0
            parameter.data = parameter.data + 1
    for name, buffer in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            size = {"longcat_flash": 0.1, "kolibri1": 5.0}.get(model.config.model_type, 1.0)  # of scores that add up to 1, and of logits
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * size)
        elif name.endswith("tid2eid"):  # no expert twice
            buffer.copy_(torch.rand((len(buffer), model.config.n_routed_experts), generator=generator).argsort(dim=-1)[:, :buffer.shape[1]])
        elif name.endswith("layer_scalar"):
            buffer.copy_(0.8 + 0.4 * torch.rand(buffer.shape, generator=generator))


def make_model(kind, options, dtype, seed):
    if kind in text_halves.KINDS:
        return with_weights(text_halves.TextHalf(kind, of_text(kind, options)).float().eval(), dtype, seed)
    kinds = rwkv7_model if kind == "RWKV7" else transformers
    text = "Text" if kind in ("Gemma3", "Gemma3n", "Gemma4", "Gemma4Unified", "Inkling", "Llama4", "MiniMaxM3VL", "Qwen3_5", "Qwen3_5Moe", "Qwen4Exp") else ""
    sizes = {} if kind in OWN_SIZES else SIZES
    config = getattr(kinds, f"{kind}{text}Config")(**copy.deepcopy({**sizes, **options}))
    config._attn_implementation = "eager"
    generates = (transformers.AutoModelForCausalLM.from_config if kind in HUB_CLASSES else
                 getattr(kinds, f"{kind}LMHeadModel" if kind in ("GPT2", "OpenAIGPT", "CTRL") else f"{kind}ForCausalLM"))
    return with_weights(generates(config).float().eval(), dtype, seed)


def ties(config):  # GLM-4V's text half says nothing
    return getattr(config, "tie_word_embeddings", False)


def of_text(kind, options):
    config = text_halves.KINDS[kind][0](**copy.deepcopy({**SIZES, **options}))
    config._attn_implementation = "eager"
    return config


def with_weights(model, dtype, seed):
    random_weights(model, seed)
    if ties(model.config) and isinstance(model, text_halves.TextHalf):
        model.lm_head.weight = model.model.embed_tokens.weight
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype).float()
    for name, buffer in model.named_buffers():
        if name.endswith(("bias", "layer_scalar")):  # of choices and of rows, which a file rounds
            buffer.copy_(buffer.to(dtype))
    return model


def layers_of(model):
    return next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList))


def hooks_of_longcat(model, hidden):
    hooks = []
    for layer in layers_of(model):
        hooks.append(layer.input_layernorm[1].register_forward_pre_hook(
            lambda module, inputs: hidden.append(inputs[0].detach().clone().reshape(TOKENS, -1))))
        mixed = []
        hooks.append(layer.mlp.register_forward_hook(lambda module, inputs, output, mixed=mixed: mixed.append(output.detach().reshape(TOKENS, -1))))
        hooks.append(layer.register_forward_hook(
            lambda module, inputs, output, mixed=mixed: hidden.extend([output.detach().reshape(TOKENS, -1) - mixed[-1], output.detach().clone().reshape(TOKENS, -1)])))
    return hooks


def hooks_of_qwen4(model, hidden, width):
    hooks = [layer.attn_hyper_connection.register_forward_pre_hook(
        lambda module, inputs: hidden.append(inputs[0][..., :width].detach().clone().reshape(TOKENS, -1)))
        for layer in layers_of(model) if layer.ple is not None]
    hooks.append(model.model.hyper_connection_mixer.register_forward_hook(
        lambda module, inputs, output: hidden.__setitem__(-1, output.detach().clone().reshape(TOKENS, -1))))
    return hooks


def with_layers_that_keep(model, tokens, hidden):
    """What layers of keys that tokens share are here: two, of which the first leaves its rows as they are."""
    rows, layers = model.model.embed_tokens(tokens.long()).detach(), []
    for kind, behind in zip(model.config.layer_types, hidden):
        layers += [behind] if kind == "sliding_attention" else [rows, behind]
        rows = behind
    return layers


def expected_values(model, seed):
    generator = torch.Generator().manual_seed(seed + 1000)
    vocab = model.config.vocab_size
    tokens = torch.randint(0, vocab, (TOKENS,), generator=generator, dtype=torch.int32)
    hidden, active = [], getattr(model.config, "altup_active_idx", None)
    hyper = hasattr(model.config, "hc_mult")  # of streams beside each other the first
    width = model.config.hidden_size if hasattr(model.config, "hc_count") else None  # of the first of the streams that lie side by side
    hooks = [layer.register_forward_hook(
        lambda module, inputs, output: hidden.append(
            (output[..., :width] if width else output[0][..., 0, :] if hyper else output if active is None and not isinstance(output, (tuple, list)) else output[active or 0])
            .detach().clone().reshape(TOKENS, -1)))
        for layer in layers_of(model)]
    if model.config.model_type == "longcat_flash":  # of a layer its first half, its second, and the mixture
        for hook in hooks:
            hook.remove()
        hooks = hooks_of_longcat(model, hidden)
    if width:
        hooks += hooks_of_qwen4(model, hidden, width)
    if active is not None or hyper:  # the streams are joined behind the last layer
        hooks.append(model.model.norm.register_forward_pre_hook(
            lambda module, inputs: hidden.__setitem__(-1, inputs[0].detach().clone().reshape(TOKENS, -1))))
    with torch.no_grad():
        if isinstance(model, rwkv7_model.RWKV7ForCausalLM):
            logits = model(tokens.long(), hidden)
            hidden = [rows for index, rows in enumerate(hidden) if index % 3 < 2]  # the third is the hook's
        else:
            logits = model(tokens[None].long(), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    if model.config.model_type == "deepseek_v4":
        hidden = with_layers_that_keep(model, tokens, hidden)
    return {"tokens": tokens, "positions": torch.tensor(POSITIONS, dtype=torch.int32),
            "hidden": torch.stack(hidden)[:, POSITIONS].contiguous(),
            "logits": logits[POSITIONS].float().contiguous(),
            "served_length": torch.tensor([TOKENS], dtype=torch.int32)}


# ---- Hugging Face folders ----


def old_spelling(config):
    parameters = config.pop("rope_parameters")
    config.pop("layer_types", None)
    if "full_attention" in parameters:
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = 2
        parameters = parameters["full_attention"]
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters.get("rope_type") == "default" else parameters
    return config


def nest(config, weights, kind, prefix):
    outer = {"architectures": [f"{kind}ForConditionalGeneration"], "model_type": kind.lower(),
             "eos_token_id": [2, 3], "text_config": config, "vision_config": {"hidden_size": 8}}
    if kind == "Gemma4":  # as its first files have it
        config = {**config, "global_head_dim": 32, "num_global_key_value_heads": 1, "use_bidirectional_attention": "vision"}
        config.pop("per_layer_config")
        outer["text_config"] = config
    weights = {name.replace("model.", prefix, 1): value
               for name, value in weights.items()}
    if kind.startswith(("Qwen3VL", "Glm4v")):  # where it is said whether embeddings are the output matrix
        outer["tie_word_embeddings"] = config.get("tie_word_embeddings", False)
    if kind == "Qwen3VLMoe":
        config["tie_word_embeddings"] = True  # as the library always writes it, where it says nothing
    if kind == "Step3p7":
        weights["vision_model.conv1.weight"] = torch.zeros(2, 2)
        weights["vit_large_projector.weight"] = torch.zeros(2, 2)
        return outer, weights
    if kind in ("Qwen3VLMoe", "Glm4v", "Glm4vMoe"):
        weights["model.visual.blocks.0.attn.qkv.weight"] = torch.zeros(2, 2)
        return outer, weights
    if kind == "Qwen4Exp":
        weights["model.visual.blocks.0.attn.qkv.weight"] = torch.zeros(2, 2)
        return outer, weights
    if kind.startswith("Qwen"):  # three positions of a token, which of text are one
        config["rope_parameters"].update(rope_type="mrope" if kind == "Qwen2_5_VL" else "default", mrope_section=[1, 1, 2])
        weights["model.visual.blocks.0.attn.qkv.weight"] = torch.zeros(2, 2)
        return outer, weights
    if kind == "Apertus1p5":
        weights["model.vision_tokenizer.quantize.embedding.weight"] = torch.zeros(2, 2)
        weights["model.audio_tokenizer.quantizer.codebook"] = torch.zeros(2, 2)
        return outer, weights
    if kind == "MiniMaxM3Sparse":
        return as_minimax_m3(outer, weights)
    if kind == "KimiK25":
        weights["language_model.lm_head.weight"] = weights.pop("lm_head.weight")
        weights["vision_tower.encoder.blocks.0.wo.weight"] = torch.zeros(2, 2)
        weights["mm_projector.proj.0.weight"] = torch.zeros(2, 2)
        return outer, weights
    if kind == "Llama4":
        weights["vision_model.class_embedding"] = torch.zeros(2)
        weights["multi_modal_projector.linear_1.weight"] = torch.zeros(2, 2)
    elif kind in ("Gemma3", "Mistral3"):
        weights["vision_tower.vision_model.head.weight"] = torch.zeros(2, 2)
        weights["multi_modal_projector.mm_input_projection_weight"] = torch.zeros(2, 2)
    else:
        weights["model.vision_tower.head.weight"] = torch.zeros(2, 2)
        weights["model.embed_audio.embedding_projection.weight"] = torch.zeros(2, 2)
    return outer, weights


def as_minimax_m3(outer, weights):
    """As the hub has it: the index's numbers and lists of layers in other words, gates, ups and experts apart."""
    config = outer["text_config"]
    spelled = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim", "index_block_size": "sparse_block_size",
               "index_topk_blocks": "sparse_topk_blocks", "index_local_blocks": "sparse_local_block"}
    config["sparse_attention_config"] = {theirs: config.pop(ours) for ours, theirs in spelled.items()}
    config["sparse_attention_config"]["sparse_attention_freq"] = [int(kind != "full_attention") for kind in config.pop("layer_types")]
    config["moe_layer_freq"] = [int(kind != "dense") for kind in config.pop("mlp_layer_types")]
    config["hidden_act"] = "swigluoai"
    apart = {}
    for name, value in weights.items():
        name = name.replace("lm_head", "language_model.lm_head")
        name = re.sub(r"\.indexer\.([qk]_)", r".index_\1", name).replace("mlp.gate.e_score", "mlp.e_score")
        name = re.sub(r"\.mlp\.(experts|gate|shared_experts|e_score_correction_bias)\b", r".block_sparse_moe.\1", name)
        if "block_sparse_moe.experts." in name:
            stem, down = name.rsplit(".", 1)[0], name.endswith("down_proj")
            for expert, matrix in enumerate(value):
                for part, rows in zip(("w2",) if down else ("w1", "w3"), (matrix,) if down else matrix.chunk(2)):
                    apart[f"{stem}.{expert}.{part}.weight"] = rows.contiguous()
        elif name.endswith("gate_up_proj.weight"):
            for part, rows in zip(("gate_proj", "up_proj"), value.chunk(2)):
                apart[name.replace("gate_up_proj", part)] = rows.contiguous()
        else:
            apart[name] = value
    apart["vision_tower.vision_model.pre_layrnorm.weight"] = torch.zeros(2)
    apart["vision_tower.vision_model.embeddings.patch_embedding.weight"] = torch.zeros(2, 1, 2, 2, 2)
    for projector in ("multi_modal_projector", "patch_merge_mlp"):
        apart[f"{projector}.linear_1.weight"] = torch.zeros(2, 2)
    return outer, apart


def as_deepseek4(config, weights):
    """As the hub's own files have it, where the library says it otherwise."""
    ratios = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    config = {key: value for key, value in config.items() if key not in ("partial_rotary_factor", "mlp_layer_types")}
    rates, scaling = config.pop("compress_rates"), config.pop("rope_parameters")["compress"]
    config.update(compress_ratios=[*(ratios[kind] for kind in config.pop("layer_types")), 0], num_hash_layers=1,
                  compress_rate_csa=rates["compressed_sparse_attention"], compress_rate_hca=rates["heavily_compressed_attention"],
                  rope_scaling=dict(type="yarn", **{key: scaling[key] for key in ("factor", "original_max_position_embeddings")}))
    weights = {re.sub(r"^(layers\.\d+\.attn\.)norm", r"\1kv_norm", name.removeprefix("model.").replace("embed_tokens", "embed").replace("hc_head.hc_", "hc_head_")): value
               for name, value in weights.items()}
    weights["mtp.0.enorm.weight"] = torch.zeros(2)
    return config, weights


def as_inkling(config, weights):
    """As the hub's own files have it: widths, layers and tensors under other names, gates and ups by turns."""
    slides = [i for i, kind in enumerate(config.pop("layer_types")) if kind == "hybrid_sliding"]
    config.update(local_layer_ids=slides, dense_mlp_idx=config.pop("mlp_layer_types").count("dense"), dense_intermediate_size=config["intermediate_size"],
                  sconv_kernel_size=config.pop("conv_kernel_size"), model_max_length=config.pop("max_position_embeddings"))
    config["intermediate_size"] = config.pop("moe_intermediate_size")
    names = {"embed_tokens.embed_norm": "embed_norm", "embed_tokens": "embed", "self_attn.q_proj": "attn.wq_du", "self_attn.k_proj": "attn.wk_dv", "self_attn.v_proj": "attn.wv_dv",
             "self_attn.r_proj": "attn.wr_du", "self_attn.o_proj": "attn.wo_ud", "self_attn": "attn", "sconv.conv1d": "sconv", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "mlp_norm", "gate.e_score_correction_bias": "gate.bias", "mlp.down_proj": "mlp.w2_md", "experts.down_proj": "experts.w2_weight",
             "shared_experts.w2_weight": "shared_experts.shared_w2_weight"}
    named = {"model.mtp.0.attn.wq_du.weight": torch.zeros(2, 2), "model.visual.layers.linear_0.weight": torch.zeros(2, 2), "model.audio.encoder.weight": torch.zeros(2, 2)}

    def by_turns(gates, ups):
        return torch.stack([gates, ups], dim=-2).flatten(-3, -2).contiguous()

    for name, value in weights.items():
        for own, of_hub in names.items():
            name = name.replace(own, of_hub)
        name = "model.llm.unembed.weight" if name == "lm_head.weight" else name.replace("model.", "model.llm.", 1)
        if name.endswith("up_proj.weight") or name.endswith("shared_experts.up_proj"):
            continue
        if name.endswith("mlp.gate_proj.weight"):
            named[name.replace("gate_proj", "w13_dn")] = by_turns(value, weights[name.replace("model.llm.", "model.").replace("gate_proj", "up_proj")])
        elif name.endswith("shared_experts.gate_proj"):
            named[name.replace("gate_proj", "shared_w13_weight")] = by_turns(value, weights[name.replace("model.llm.", "model.").replace("gate_proj", "up_proj")])
        elif name.endswith("experts.gate_up_proj"):
            named[name.replace("gate_up_proj", "w13_weight")] = by_turns(*value.chunk(2, dim=1))
        else:
            named[name] = value
    outer = {"architectures": ["InklingForConditionalGeneration"], "model_type": "inkling_mm_model", "text_config": config, "vision_config": {"hidden_size": 8}, "audio_config": {"n_mel_bins": 4}}
    return outer, {name: value.squeeze(1) if "sconv" in name else value for name, value in named.items()}


def as_kimi(config, weights):
    """As the hub has it: layers and heads in an object of their own, networks that are no mixtures under their own name."""
    kinds = [kind == "full_attention" for kind in config.pop("layer_types")]
    config["linear_attn_config"] = {
        "full_attn_layers": [i + 1 for i, full in enumerate(kinds) if full], "kda_layers": [i + 1 for i, full in enumerate(kinds) if not full],
        "head_dim": config.pop("linear_head_dim"), "num_heads": config.pop("linear_num_heads"),
        "short_conv_kernel_size": config.pop("linear_conv_kernel_dim")}
    config.update(first_k_dense_replace=config.pop("mlp_layer_types").count("dense"), head_dim=72, mla_use_nope=True,
                  moe_router_activation_func="sigmoid", moe_layer_freq=1)
    return config, {re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", key): value for key, value in weights.items()}


def as_the_hub_calls_it(kind, config, weights):
    config["architectures"] = [f"{kind}ForCausalLM"]
    for ours, theirs in HUB_CLASSES[kind].items():
        config[theirs] = config.pop(ours)
    if config["rope_parameters"]["rope_type"] == "yarn":
        config["rope_parameters"]["rope_type"] = "deepseek_yarn"
    return config, weights


def write_folder(folder, name, model, dtype):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "_name_or_path", "dtype"):
        config.pop(key, None)
    if name in IN_THE_OLD_SPELLING:
        config = old_spelling(config)
    weights = model.state_dict()
    if name in {**EXPERT_FOLDERS, **ROUTER_FOLDERS, **STATE_FOLDERS,
                **LATER_STATE_FOLDERS, **LATENT_FOLDERS, **KIN_FOLDERS, **GPT_FOLDERS, **MAMBA_FOLDERS, **LAST_FOLDERS,
                **NEWEST_FOLDERS, **LLAMA4_FOLDERS, **SPARSE_FOLDERS, **KIMI_FOLDERS, **MORE_FOLDERS, **LATEST_FOLDERS, **FURTHER_FOLDERS, **BLOCK_FOLDERS, **SHARING_FOLDERS, **GATED_FOLDERS, **PRUNED_FOLDERS} and name not in FUSED:
        weights = load_file(folder / "model.safetensors")
    weights = {key: (value.to(dtype) if value.is_floating_point() else value).contiguous() for key, value in weights.items()}
    if ties(model.config):
        weights.pop("lm_head.weight", None)
    if model.config.model_type == "longcat_flash":  # the library has gates of experts that compute nothing
        weights = {key: value for key, value in weights.items()
                   if ".experts." not in key or int(key.split(".experts.")[1].split(".")[0]) < model.config.n_routed_experts}
    if name in FURTHER_FOLDERS and FURTHER_FOLDERS[name][0] in HUB_CLASSES:
        config, weights = as_the_hub_calls_it(FURTHER_FOLDERS[name][0], config, weights)
    if name in SEEING_FOLDERS and name not in FUSED:
        weights = text_halves.hub_names(SEEING_FOLDERS[name][0], weights)
    if name == "step35":
        config, weights = text_halves.step_of_the_hub(config, weights)
    if name in NESTED:
        config, weights = nest(config, weights, *NESTED[name])
    if name in KIMI_FOLDERS:
        config, weights = as_kimi(config, weights)
    if name == "inkling-hub":
        config, weights = as_inkling(config, weights)
    if name == "deepseek4-hub":
        config, weights = as_deepseek4(config, weights)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# ---- GGUF, with the keys and the row orders that llama.cpp's converter writes ----

ARCHITECTURES = {"Llama": "llama", "Qwen2": "qwen2", "Qwen3": "qwen3", "Gemma2": "gemma2",
                 "Gemma3": "gemma3", "Phi3": "phi3", "SmolLM3": "smollm3", "Olmo2": "olmo2", "Olmo3": "olmo2",
                 "Granite": "granite", "Ministral3": "mistral3", "Llama4": "llama4", "Starcoder2": "starcoder2", "Mixtral": "llama", "Qwen2Moe": "qwen2moe",
                 "Lfm2": "lfm2", "Lfm2Moe": "lfm2moe", "Qwen3Moe": "qwen3moe", "Olmoe": "olmoe", "GraniteMoe": "granitemoe", "Dots1": "dots1",
                 "HunYuanDenseV1": "hunyuan-dense", "HunYuanMoEV1": "hunyuan-moe", "DeepseekV2": "deepseek2", "DeepseekV3": "deepseek2",
                 "Mistral4": "mistral4", "DeepseekV32": "deepseek32", "GlmMoeDsa": "glm-dsa", "KimiLinear": "kimi-linear", "MiniMax": "minimax-01",
                 "Qwen3_5": "qwen35", "Qwen3_5Moe": "qwen35moe", "Qwen3Next": "qwen3next"}
DELTA_ARCHITECTURES = ("qwen35", "qwen35moe", "qwen3next")
LATENT_ARCHITECTURES = ("deepseek2", "mistral4", "deepseek32", "glm-dsa")
INTERLEAVED = {"llama", "mistral3", "smollm3", "granite", "granitemoe"}
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.qkv_proj": "attn_qkv", "self_attn.output_gate": "attn_gate", "self_attn.norm": "attn_norm_2", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
         "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
         "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
         "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
         "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.b_proj": "ssm_beta", "self_attn.g_a_proj": "ssm_g_a", "self_attn.g_b_proj": "ssm_g_b", "self_attn.o_norm": "ssm_norm",
         "self_attn.forget_gate.f_a_proj": "ssm_f_a", "self_attn.forget_gate.f_b_proj": "ssm_f_b", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.router": "ffn_gate_inp",
         "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
         "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
         "self_attn.kv_b_proj": "attn_kv_b", "self_attn.indexer.k_norm": "indexer.k_norm", "self_attn.indexer.wk": "indexer.attn_k",
         "self_attn.indexer.weights_proj": "indexer.proj", "self_attn.indexer.wq_b": "indexer.attn_q_b",
         "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm", "mlp.gate.wg": "ffn_gate_inp",
         "mlp.shared_mlp.gate_proj": "ffn_gate_shexp", "mlp.shared_mlp.up_proj": "ffn_up_shexp",
         "mlp.shared_mlp.down_proj": "ffn_down_shexp", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "conv.conv": "shortconv.conv",
         "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
         "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
         "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
         "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
         "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
         "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
         "feed_forward.w2": "ffn_down", "feed_forward.gate": "ffn_gate_inp", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "model.embedding_norm": "token_embd_norm"}


def gguf_name(name, post_norms):
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    if post_norms and part == "post_attention_layernorm":
        return f"blk.{layer}.post_attention_norm.{kind}"
    if kind in ("e_score_correction_bias", "expert_bias"):
        return f"blk.{layer}.exp_probs_b.bias"
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def interleave_rows(rows, heads):
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def write_keys(writer, config, architecture):
    parameters = config.rope_parameters.get("full_attention", config.rope_parameters)
    head_dim = getattr(config, "head_dim", None) if architecture not in LATENT_ARCHITECTURES else None
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers + (architecture in DRAFTING))
    writer.add_head_count(config.num_attention_heads)
    if architecture in ("lfm2", "lfm2moe"):
        width, multiple = 2 * config.intermediate_size // 3, getattr(config, "block_multiple_of", 1)
        adjusted = (width + multiple - 1) // multiple * multiple
        writer.add_feed_forward_length(adjusted if architecture == "lfm2" else config.intermediate_size)
        writer.add_head_count_kv([config.num_key_value_heads if kind == "full_attention" else 0
                                  for kind in config.layer_types])
        writer.add_shortconv_l_cache(config.conv_L_cache)
        writer.add_vocab_size(config.vocab_size)
    else:
        if architecture != "qwen35moe":  # whose configurations do not have it
            writer.add_feed_forward_length(getattr(config, "intermediate_size_mlp", config.intermediate_size))
        writer.add_head_count_kv(1 if is_latent_apart(config) else config.num_key_value_heads)
    writer.add_rope_freq_base(parameters["rope_theta"])
    if architecture == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(config.norm_eps if architecture.startswith("lfm2") else config.rms_norm_eps)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if architecture in INTERLEAVED:
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(head_dim or config.hidden_size // config.num_attention_heads)
    if architecture in ("gemma2", "gemma3") or config.model_type == "olmo3":
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    experts = getattr(config, "num_local_experts", 0) or getattr(config, "num_experts", 0)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.moe_topk if architecture == "hunyuan-moe" else config.num_experts_per_tok)
    if architecture == "hunyuan-moe":
        writer.add_expert_feed_forward_length(config.intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.intermediate_size)
    if architecture in LATENT_ARCHITECTURES:
        write_latent_keys(writer, config)
    if architecture in ("dots1", *LATENT_ARCHITECTURES):
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        if config.model_type != "deepseek_v2":
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if architecture == "mistral4" else gguf.ExpertGatingFuncType.SIGMOID)
            writer.add_expert_group_count(config.n_group)
            writer.add_expert_group_used_count(config.topk_group)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if architecture == "lfm2moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
    if architecture in ("qwen2moe", "qwen3moe", "dots1", "lfm2moe", "qwen35moe", "qwen3next", *LATENT_ARCHITECTURES):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if architecture in DELTA_ARCHITECTURES:
        write_delta_keys(writer, config, architecture)
    if architecture in ("qwen2moe", "qwen35moe", "qwen3next"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if architecture in ("granite", "granitemoe"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if architecture == "minimax-01":
        writer.add_residual_scale(config.full_attn_alpha_factor)
        writer.add_array("minimax-01.attention.recurrent_layers", [kind == "linear_attention" for kind in config.layer_types])
    if parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
    if architecture == "llama4":
        writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if architecture == "mistral4":
        writer.add_attn_temperature_scale(parameters["llama_4_scaling_beta"])
    if architecture == "mistral3":
        writer.add_attn_temperature_scale(parameters["llama_4_scaling_beta"])
        writer.add_rope_scaling_yarn_log_mul(parameters["mscale_all_dim"])
    if architecture == "phi3":
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
        original = parameters["original_max_position_embeddings"]
        stretch = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_sliding_window(0)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))


# Of which a file has a layer that drafts, behind the others.
DRAFTING = ("qwen35",)


def write_delta_keys(writer, config, architecture):
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    drafts = [False] * (architecture in DRAFTING)
    writer.add_array(f"{architecture}.attention.recurrent_layers", [kind == "linear_attention" for kind in config.layer_types] + drafts)
    writer.add_uint32(f"{architecture}.full_attention_interval", 4)
    writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    if architecture != "qwen3next":
        writer.add_rope_dimension_sections([11, 11, 10, 0])
    if drafts:
        writer.add_uint32(f"{architecture}.nextn_predict_layers", len(drafts))


def delta_tensors(config, architecture, state):
    """Of value heads, which lie by key head in the library, llama.cpp's files of Qwen 3.5 have the first of each key head first."""
    keys, values, dim = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_key_head_dim
    by_place = lambda rows: rows.reshape(keys, values // keys, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)
    tiled = (lambda rows: rows) if architecture == "qwen3next" else by_place
    behind_keys = lambda rows: numpy.concatenate([rows[:2 * keys * dim], tiled(rows[2 * keys * dim:])])
    changes = {"attn_qkv": behind_keys, "ssm_conv1d": lambda rows: behind_keys(rows.squeeze(1)), "attn_gate": tiled, "ssm_beta": tiled,
               "ssm_alpha": tiled, "ssm_out": lambda rows: tiled(rows.T).T, "ssm_norm": lambda rows: rows}
    others = {}
    for name, value in state.items():
        stem, _, kind = name.partition(".linear_attn.")
        block = f"blk.{stem.split('.')[-1]}."
        if kind == "A_log":
            yield block + "ssm_a", -numpy.exp(tiled(value.numpy()))
        elif kind == "dt_bias":
            yield block + "ssm_dt.bias", tiled(value.numpy())
        elif kind == "in_proj_qkvz.weight":
            width = values // keys * config.linear_value_head_dim
            parts = numpy.split(value.numpy().reshape(keys, -1, config.hidden_size), [dim, 2 * dim, 2 * dim + width], axis=1)
            q, k, v, z = (part.reshape(-1, config.hidden_size) for part in parts)
            yield block + "attn_qkv.weight", numpy.concatenate([q, k, v])
            yield block + "attn_gate.weight", z
        elif name.endswith("gate_up_proj") and architecture == "qwen3next":  # as the converter has them with --fuse-gate-up-exps
            yield f"blk.{name.split('.')[2]}.ffn_gate_up_exps.weight", value.numpy()
        else:
            others[name] = value
    for name, rows in by_gguf_names(others, post_norms=True):
        change = changes.get(name.split(".")[-2], lambda rows: rows + 1 if name.endswith("norm.weight") else rows)
        yield name, change(rows)
    if architecture in DRAFTING:
        yield f"blk.{config.num_hidden_layers}.nextn.enorm.weight", numpy.ones(config.hidden_size)


def is_latent_apart(config):
    """Files of before 2025 join the matrices of keys and values and have the sizes of heads."""
    return config.model_type != "deepseek_v2" and hasattr(config, "kv_lora_rank")


def write_latent_keys(writer, config):
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    query_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
    if is_latent_apart(config):
        writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
        writer.add_value_length(config.kv_lora_rank)
        writer.add_key_length_mla(query_dim)
        writer.add_value_length_mla(config.v_head_dim)
    else:
        writer.add_key_length(query_dim)
        writer.add_value_length(config.v_head_dim)
    if hasattr(config, "index_topk"):
        writer.add_indexer_head_count(config.index_n_heads)
        writer.add_indexer_key_length(config.index_head_dim)
        writer.add_indexer_top_k(config.index_topk)
    if hasattr(config, "indexer_types"):
        writer.add_array(f"{writer.arch}.attention.indexer.types", [kind == "full" for kind in config.indexer_types])
    if "mscale_all_dim" in config.rope_parameters:
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])


def latents_apart(config, name, rows):
    """attn_kv_b as attn_k_b, a head's matrix turned, and attn_v_b."""
    heads = rows.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
    keys, values = numpy.split(heads, [config.qk_nope_head_dim], axis=1)
    return [(name.replace("kv_b", "k_b"), keys.swapaxes(1, 2)), (name.replace("kv_b", "v_b"), values)]


def rope_tensors(config):
    """Divisors of the frequencies, as the converter writes them."""
    parameters = config.rope_parameters.get("full_attention", config.rope_parameters)
    if parameters["rope_type"] == "longrope":
        return {"rope_factors_long.weight": parameters["long_factor"],
                "rope_factors_short.weight": parameters["short_factor"]}
    if parameters["rope_type"] != "llama3":
        return {}
    dim = config.head_dim
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * parameters["rope_theta"] ** (i / dim)
        original = parameters["original_max_position_embeddings"]
        low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
        smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / parameters["factor"] + smooth))
    return {"rope_freqs.weight": factors}


def by_gguf_names(state, post_norms):
    """Experts' gates and ups lie in one tensor of the library, and in two of a file."""
    for name, value in state.items():
        stem, _, kind = name.partition(".experts.")
        layer = stem.split(".")[2] if kind else ""
        if kind == "gate_up_proj":
            gate, up = value.chunk(2, dim=1)
            yield f"blk.{layer}.ffn_gate_exps.weight", gate.numpy()
            yield f"blk.{layer}.ffn_up_exps.weight", up.numpy()
        elif kind == "down_proj":
            yield f"blk.{layer}.ffn_down_exps.weight", value.numpy()
        else:
            yield gguf_name(name, post_norms), value.numpy()


# What llama.cpp calls the tensors of GPT-2's kin.
GPT_NAMES = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
             "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "input_layernorm": "attn_norm", "ln_mlp": "attn_norm",
             "ln_attn": "attn_norm_2", "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
             "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
GPT_NAMES |= {"post_attention_layernorm": "ffn_norm", "norm_1": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output",
              "norm_2": "ffn_norm", "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"}
GPT_OUTER = {"transformer.word_embeddings_layernorm": "token_embd_norm", "transformer.norm_f": "output_norm", "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
             "transformer.word_embeddings": "token_embd", "lm_head": "output"}
GPT_ARCHITECTURES = {"Bloom": "bloom", "Mpt": "mpt", "GPT2": "gpt2", "GPTBigCode": "starcoder", "Falcon": "falcon"}


def all_queries_first(rows, kv_heads, group):
    """The rows of Falcon's files, a key head's together, as the converter puts them."""
    by_head = rows.reshape(kv_heads, group + 2, -1, rows.shape[-1])
    parts = by_head[:, :-2], by_head[:, [-2]], by_head[:, [-1]]
    return numpy.concatenate([part.reshape(-1, rows.shape[-1]) for part in parts])


def write_gpt_gguf(path, kind, model):
    config = model.config
    falcon = kind == "Falcon"
    heads = config.num_attention_heads
    newer = falcon and config.new_decoder_architecture
    kv_heads = config.num_kv_heads if newer else heads if kind in ("GPT2", "Bloom", "Mpt") else 1
    writer = gguf.GGUFWriter(path, GPT_ARCHITECTURES[kind])
    writer.add_name("tiny")
    leans = kind in ("Bloom", "Mpt")
    writer.add_context_length(256 if leans else config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.ffn_hidden_size if falcon else 4 * config.hidden_size if leans
                                   else config.n_inner or 4 * config.n_embd)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(heads)
    if kind not in ("GPT2", "Mpt"):
        writer.add_head_count_kv(kv_heads)
    if kind == "Mpt":
        writer.add_max_alibi_bias(config.attn_config.alibi_bias_max)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    for name, value in model.state_dict().items():
        stem, suffix = name.rsplit(".", 1)
        rows = value.numpy()
        if stem == "lm_head" and config.tie_word_embeddings:
            continue
        if kind == "GPT2" and suffix == "weight" and stem.endswith(("c_attn", "c_proj", "c_fc")):
            rows = rows.T
        if kind == "Bloom" and stem.endswith("query_key_value"):
            rows = all_queries_first(rows.reshape(len(rows), -1), heads, 1).reshape(rows.shape)
        if falcon and stem.endswith("query_key_value"):
            rows = all_queries_first(rows, kv_heads, heads // kv_heads)
        if stem in GPT_OUTER:
            named = GPT_OUTER[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            named = f"blk.{layer}.{GPT_NAMES[part]}"
        exact = rows.ndim == 1 or named == "position_embd"
        writer.add_tensor(f"{named}.{suffix}", numpy.ascontiguousarray(rows.astype(numpy.float32 if exact else numpy.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# And those of state spaces.
MAMBA_NAMES = {"norm": "attn_norm", "mixer.q_proj": "attn_q", "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v",
               "mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down",
               "pre_ff_layernorm": "ffn_norm", "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
               "feed_forward.down_proj": "ffn_down", "block_sparse_moe.router": "ffn_gate_inp",
               **{f"{mixer}.{part}": f"ssm_{part.removesuffix('_proj')}"
                  for mixer in ("mixer", "mamba") for part in ("in_proj", "conv1d", "norm", "out_proj", "x_proj", "dt_proj")},
               "mamba.dt_layernorm": "ssm_dt_norm", "mamba.b_layernorm": "ssm_b_norm", "mamba.c_layernorm": "ssm_c_norm",
               "feed_forward.router": "ffn_gate_inp", "mixer.gate": "ffn_gate_inp",
               "mixer.shared_experts.up_proj": "ffn_up_shexp", "mixer.shared_experts.down_proj": "ffn_down_shexp"}
MAMBA_OUTER = {"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "model.embeddings": "token_embd",
               "model.norm_f": "output_norm", "model.final_layernorm": "output_norm"}
MAMBA_ARCHITECTURES = {"Mamba": "mamba", "FalconMamba": "mamba", "Jamba": "jamba", "Mamba2": "mamba2", "GraniteMoeHybrid": "granitehybrid", "FalconH1": "falcon-h1",
                       "NemotronH": "nemotron_h"}


def mamba_tensors(config, architecture, state):
    """Rows by the converter's names; what one tensor of the library holds, in two of a file."""
    groups = getattr(config, "n_groups", None) or getattr(config, "mamba_n_groups", None)
    shared = "_shexp" if getattr(config, "num_local_experts", 0) else ""
    for name, value in state.items():
        rows = value.numpy()
        stem, kind = name.rsplit(".", 1)
        if stem in {**OUTER, **MAMBA_OUTER}:
            yield f"{ {**OUTER, **MAMBA_OUTER}[stem]}.{kind}", rows
            continue
        _, _, layer, part = name.split(".", 3)
        block = f"blk.{layer}."
        if kind == "A_log":  # of each head, or of each channel and component
            yield block + "ssm_a", -numpy.exp(rows).reshape(len(rows), -1)
        elif kind == "D":
            yield block + "ssm_d", rows[:, None] if groups else rows
        elif kind == "dt_bias":
            yield block + "ssm_dt.bias", rows
        elif kind == "e_score_correction_bias":
            yield block + "exp_probs_b.bias", rows
        elif part.endswith(("mixer.norm.weight", "mamba.norm.weight")):
            yield block + "ssm_norm.weight", rows.reshape(groups, -1)
        elif part.endswith("conv1d.weight"):
            yield block + "ssm_conv1d.weight", rows.squeeze(1)
        elif ".experts." in part or part.startswith("shared_mlp"):
            end = "_exps" if ".experts." in part else shared
            if part.endswith("experts.up_proj"):
                yield f"{block}ffn_up{end}.weight", rows
            elif part.endswith(("gate_up_proj", "input_linear.weight")):
                gate, up = numpy.split(rows, 2, axis=-2)
                yield f"{block}ffn_gate{end}.weight", gate
                yield f"{block}ffn_up{end}.weight", up
            else:
                yield f"{block}ffn_down{end}.weight", rows
        else:
            stem = part.rsplit(".", 1)[0]
            end = "" if architecture == "falcon-h1" and stem == "pre_ff_layernorm" else f".{kind}"
            yield f"{block}{ {**NAMES, **MAMBA_NAMES}[stem]}{end}", rows


def multiplied(config, name, rows):
    """A tensor of Falcon-H1 with its multipliers, which are powers of two here."""
    for part, factor in (("ffn_gate", config.mlp_multipliers[0]), ("ffn_down", config.mlp_multipliers[1]),
                         ("attn_k", config.key_multiplier), ("ssm_out", config.ssm_out_multiplier),
                         ("output.weight", config.lm_head_multiplier)):
        if f".{part}." in name or name == part:
            return rows * factor
    return rows


def write_first_mamba_keys(writer, config, architecture):
    jamba = architecture == "jamba"
    writer.add_name("tiny")
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps if jamba else config.layer_norm_epsilon)
    writer.add_context_length(config.max_position_embeddings if jamba else 2**20)
    writer.add_feed_forward_length(config.intermediate_size if jamba else 0)
    writer.add_head_count(config.num_attention_heads if jamba else 0)
    if jamba:
        writer.add_head_count_kv([config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types])
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    else:
        writer.add_ssm_dt_b_c_rms(config.model_type == "falcon_mamba")
    writer.add_ssm_conv_kernel(config.mamba_d_conv if jamba else config.conv_kernel)
    writer.add_ssm_inner_size((config.mamba_expand if jamba else config.expand) * config.hidden_size)
    writer.add_ssm_state_size(config.mamba_d_state if jamba else config.state_size)
    writer.add_ssm_time_step_rank(config.mamba_dt_rank if jamba else config.time_step_rank)


def write_mamba_keys(writer, config, architecture):
    if architecture in ("mamba", "jamba"):
        return write_first_mamba_keys(writer, config, architecture)
    hybrid = architecture != "mamba2"
    attends = [kind == "full_attention" for kind in config.layer_types] if hybrid else []
    writer.add_name("tiny")
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps if architecture in ("granitehybrid", "falcon-h1")
                                  else config.layer_norm_epsilon)
    if hybrid:
        writer.add_head_count(config.num_attention_heads)
        writer.add_context_length(config.max_position_embeddings)
        heads = [config.num_key_value_heads if each else 0 for each in attends]
        writer.add_head_count_kv(config.num_key_value_heads if architecture == "falcon-h1" else heads)
    else:
        writer.add_head_count(0)
        writer.add_context_length(2**20)
    if architecture in ("granitehybrid", "falcon-h1"):
        heads, state, groups, taps = (config.mamba_n_heads, config.mamba_d_state, config.mamba_n_groups, config.mamba_d_conv)
        inner = config.mamba_d_ssm if architecture == "falcon-h1" else config.mamba_expand * config.hidden_size
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    elif architecture == "mamba2":
        heads, state, groups, taps = config.num_heads, config.state_size, config.n_groups, config.conv_kernel
        inner = heads * config.head_dim
        writer.add_feed_forward_length(0)
    else:
        heads, state, groups, taps = config.mamba_num_heads, config.ssm_state_size, config.n_groups, config.conv_kernel
        inner = heads * config.mamba_head_dim
        widths = {"mlp": config.intermediate_size, "moe": config.moe_intermediate_size}
        writer.add_feed_forward_length([widths.get(kind, 0) for kind in config.layer_types])
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture == "granitehybrid":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
        writer.add_rope_scaling_finetuned(False)
        if config.num_local_experts:
            writer.add_expert_count(config.num_local_experts)
            writer.add_expert_used_count(config.num_experts_per_tok)
            writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if architecture == "nemotron_h_moe":
        writer.add_expert_count(config.n_routed_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_group_count(config.n_group)
    writer.add_ssm_conv_kernel(taps)
    writer.add_ssm_state_size(state)
    writer.add_ssm_group_count(groups)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(heads)


def write_mamba_gguf(path, kind, model):
    architecture = MAMBA_ARCHITECTURES[kind]
    config = model.config
    if kind == "NemotronH" and "moe" in config.layer_types:
        architecture += "_moe"
    writer = gguf.GGUFWriter(path, architecture)
    write_mamba_keys(writer, config, architecture)
    for name, rows in mamba_tensors(config, architecture, model.state_dict()):
        if name == "output.weight" and config.tie_word_embeddings:
            continue
        if architecture == "falcon-h1":
            rows = multiplied(config, name, rows)
        if architecture.startswith(("granitehybrid", "nemotron_h")) and (".attn_q." in name or ".attn_k." in name):
            rows = interleave_rows(rows, config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads)
        exact = rows.ndim == 1 or any(part in name for part in ("ffn_gate_inp", "ssm_conv1d", "ssm_a", "ssm_d", "ssm_norm"))
        writer.add_tensor(name, numpy.ascontiguousarray(rows.astype(numpy.float32 if exact else numpy.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# And those of RWKV-7.
RWKV_PARTS = {"attn_norm": "attn_norm", "ffn_norm": "attn_norm_2", "attn.g_norm": "time_mix_ln", "attn.r_proj": "time_mix_receptance",
              "attn.k_proj": "time_mix_key", "attn.v_proj": "time_mix_value", "attn.o_proj": "time_mix_output",
              "ffn.key": "channel_mix_key", "ffn.value": "channel_mix_value"}
RWKV_OUTER = {"model.embeddings": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.0.pre_norm": "token_embd_norm"}


def rwkv_tensors(state):
    mixes = {}
    for name, value in state.items():
        rows = value.numpy()
        stem, kind = name.rsplit(".", 1)
        if stem in RWKV_OUTER:
            yield f"{RWKV_OUTER[stem]}.{kind}", rows
            continue
        _, _, layer, part = name.split(".", 3)
        block = f"blk.{layer}."
        if part.startswith("attn.x_"):
            mixes.setdefault(layer, []).append(rows)
            if len(mixes[layer]) == 6:
                yield block + "time_mix_lerp_fused.weight", numpy.stack(mixes[layer])
        elif part == "ffn.x_k":
            yield block + "channel_mix_lerp_k.weight", rows.reshape(1, 1, -1)
        elif "_lora.lora" in part:
            end = {"0.weight": "1", "2.weight": "2", "2.bias": "0"}[part.split("lora.lora.")[1]]
            yield f"{block}time_mix_{part.split('.')[1][0]}{end}.weight", rows
            if layer == "0" and ".a_lora" in part:  # which the converter writes there, and nothing reads
                yield f"{block}time_mix_v{end}.weight", rows
        elif part in ("attn.k_k", "attn.k_a", "attn.r_k"):
            yield f"{block}time_mix_{part[5:]}.weight", rows.reshape(-1)
        else:
            yield f"{block}{RWKV_PARTS[part.rsplit('.', 1)[0]]}.{kind}", rows


def write_rwkv_gguf(path, model):
    config = model.config
    writer = gguf.GGUFWriter(path, "rwkv7")
    writer.add_name("tiny")
    writer.add_context_length(2**20)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_layer_norm_eps(config.norm_eps)
    writer.add_wkv_head_size(config.head_dim)
    writer.add_decay_lora_rank(config.decay_low_rank_dim)
    writer.add_iclr_lora_rank(config.a_low_rank_dim)
    writer.add_value_residual_mix_lora_rank(config.v_low_rank_dim)
    writer.add_gate_lora_rank(config.gate_low_rank_dim)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(0)
    for name, rows in rwkv_tensors(model.state_dict()):
        matrix = rows.ndim == 2 and not name.endswith(("_w1.weight", "_w2.weight", "_a1.weight", "_a2.weight"))
        writer.add_tensor(name, numpy.ascontiguousarray(rows.astype(numpy.float16 if matrix else numpy.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# And those of Gemma 3n and 4.
LAYERED_GEMMA_PARTS = {
    **NAMES, "post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2", "router.proj": "ffn_gate_inp",
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
    "altup.correction_coefs": "altup_correct_coef", "altup.prediction_coefs": "altup_predict_coef", "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm", "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm"}
LAYERED_GEMMA_WHOLE = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
                       "layer_scalar": "layer_output_scale.weight", "altup.correct_output_scale": "altup_correct_scale.weight",
                       "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight"}
LAYERED_GEMMA_OUTER = {**OUTER, "model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
                       "model.per_layer_projection_norm": "per_layer_proj_norm"}


def layered_gemma_tensors(state):
    for name, value in state.items():
        rows = value.numpy()
        stem, kind = name.rsplit(".", 1)
        if stem.startswith(("model.altup_projections", "model.altup_unembed_projections")):
            if stem.endswith(".0"):  # one tensor of a file has all
                stack = [value.numpy() for other, value in state.items() if other.startswith(stem[:-1])]
                yield f"{'altup_unembd_proj' if 'unembed' in stem else 'altup_proj'}.{kind}", numpy.stack(stack)
        elif stem in LAYERED_GEMMA_OUTER:
            yield f"{LAYERED_GEMMA_OUTER[stem]}.{kind}", rows
        else:
            _, _, layer, part = name.split(".", 3)
            whole = LAYERED_GEMMA_WHOLE.get(part)
            yield f"blk.{layer}.{whole or LAYERED_GEMMA_PARTS[part.rsplit('.', 1)[0]] + '.' + kind}", rows


def write_layered_gemma_gguf(path, kind, model):
    config, four = model.config, kind == "Gemma4"
    slides = [kind == "sliding_attention" for kind in config.layer_types]
    full, sliding = [config.per_layer_config[slides.index(each)] if four else config for each in (False, True)]
    writer = gguf.GGUFWriter(path, kind.lower())
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(full.head_dim)
    writer.add_value_length(full.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    if four:
        first = config.num_hidden_layers - config.num_kv_shared_layers
        wide = config.use_double_wide_mlp
        writer.add_feed_forward_length([config.intermediate_size * (2 if wide and layer >= first else 1)
                                        for layer in range(config.num_hidden_layers)])
        writer.add_head_count_kv([sliding.num_key_value_heads if each else full.num_key_value_heads for each in slides])
        writer.add_key_length_swa(sliding.head_dim)
        writer.add_value_length_swa(sliding.head_dim)
        writer.add_rope_dimension_count(full.head_dim)
        writer.add_rope_dimension_count_swa(sliding.head_dim)
        turned = int(full.head_dim * config.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
        writer.add_tensor("rope_freqs.weight", numpy.array([1.0] * turned + [1e30] * (full.head_dim // 2 - turned), dtype=numpy.float32))
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_altup_active_idx(config.altup_active_idx)
        writer.add_altup_num_inputs(config.altup_num_inputs)
        writer.add_activation_sparsity_scale([torch.distributions.normal.Normal(0, 1).icdf(torch.tensor(share)).item()
                                              for share in config.activation_sparsity_pattern])
    if four and config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    for name, rows in layered_gemma_tensors(model.state_dict()):
        if name == "output.weight":
            continue
        exact = rows.ndim == 1 or "ffn_gate_inp" in name or "altup_" in name and "proj" not in name
        writer.add_tensor(name, numpy.ascontiguousarray(rows.astype(numpy.float32 if exact else numpy.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama4_tensors(state):
    for name, value in state.items():
        _, _, layer, part = name.split(".", 3) if "feed_forward" in name else ("",) * 4
        block = f"blk.{layer}.ffn_"
        if part.endswith("experts.gate_up_proj"):
            gate, up = value.transpose(1, 2).chunk(2, dim=1)
            yield block + "gate_exps.weight", gate.numpy()
            yield block + "up_exps.weight", up.numpy()
        elif part.endswith("experts.down_proj"):
            yield block + "down_exps.weight", value.transpose(1, 2).numpy()
        elif part:
            stem = part.split(".")[-2].removesuffix("_proj")
            yield f"{block}{'gate_inp' if stem == 'router' else stem}{'_shexp' if 'shared' in part else ''}.weight", value.numpy()
        else:
            yield gguf_name(name, False), value.numpy()


def write_kimi_gguf(path, model):
    config = model.config
    writer = gguf.GGUFWriter(path, "kimi-linear")
    writer.add_name("tiny")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([int(kind == "full_attention") for kind in config.layer_types])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_kda_head_dim(config.linear_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_leading_dense_block_count(config.mlp_layer_types.count("dense"))
    state = dict(model.state_dict())
    for name in list(state):
        block = f"blk.{name.split('.')[2]}." if "layers" in name else ""
        if name.endswith("conv1d.weight"):
            for part, rows in zip("qkv", state.pop(name).numpy().reshape(3, 1, -1, 1, config.linear_conv_kernel_dim)):
                writer.add_tensor(f"{block}ssm_conv1d_{part}.weight", numpy.ascontiguousarray(rows))
        elif name.endswith("A_log"):
            writer.add_tensor(block + "ssm_a", -numpy.exp(state.pop(name).numpy()))
        elif name.endswith("dt_bias"):
            writer.add_tensor(block + "ssm_dt.bias", state.pop(name).numpy())
    for name, rows in by_gguf_names(state, False):
        exact = rows.ndim == 1 or "ffn_gate_inp" in name
        rows = rows.astype(numpy.float32 if exact else numpy.float16)
        for each, values in latents_apart(config, name, rows) if ".attn_kv_b." in name else [(name, rows)]:
            writer.add_tensor(each, numpy.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf(path, kind, model):
    if kind == "KimiLinear":
        return write_kimi_gguf(path, model)
    if kind in ("Gemma3n", "Gemma4"):
        return write_layered_gemma_gguf(path, kind, model)
    if kind == "RWKV7":
        return write_rwkv_gguf(path, model)
    if kind in GPT_ARCHITECTURES:
        return write_gpt_gguf(path, kind, model)
    if kind in MAMBA_ARCHITECTURES:
        return write_mamba_gguf(path, kind, model)
    architecture = ARCHITECTURES[kind]
    config = model.config
    of_file = SEEING_ARCHITECTURES.get(pathlib.Path(path).stem, architecture)
    writer = gguf.GGUFWriter(path, of_file)
    write_keys(writer, config, architecture)
    if of_file != architecture:
        writer.add_rope_dimension_sections([2, 3, 3, 0])
    for name, factors in rope_tensors(config).items():
        writer.add_tensor(name, numpy.array(factors, dtype=numpy.float32))
    post_norms = architecture in ("gemma2", "gemma3", "olmo2")
    state = {name: value for name, value in model.state_dict().items() if not name.endswith(("_decay", "slope_rate"))}
    tensors = (llama4_tensors(state) if architecture == "llama4" else delta_tensors(config, architecture, state)
               if architecture in DELTA_ARCHITECTURES else by_gguf_names(state, post_norms))
    for name, rows in tensors:
        if name == "output.weight" and config.tie_word_embeddings:
            continue
        if architecture in INTERLEAVED and "attn_q." in name:
            rows = interleave_rows(rows, config.num_attention_heads)
        if architecture in INTERLEAVED and "attn_k." in name:
            rows = interleave_rows(rows, config.num_key_value_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            rows = rows + 1
        if ".shortconv.conv." in name:
            rows = rows.squeeze(1)
        exact = rows.ndim == 1 or "ffn_gate_inp" in name or ".shortconv.conv." in name or ".indexer.proj." in name or ".ssm_conv1d." in name
        rows = rows.astype(numpy.float32 if exact else numpy.float16)
        split = ".attn_kv_b." in name and is_latent_apart(config)
        for each, values in latents_apart(config, name, rows) if split else [(name, rows)]:
            writer.add_tensor(each, numpy.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    out = pathlib.Path(sys.argv[1])
    only = sys.argv[2:]  # of these names, where some are given
    if not only:
        shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    half = lambda files: {name: (*case, "float16") for name, case in files.items()}
    folders = {**FOLDERS, **LATER_FOLDERS, **EXPERT_FOLDERS, **ROUTER_FOLDERS, **STATE_FOLDERS,
               **LATER_STATE_FOLDERS, **LATENT_FOLDERS, **KIN_FOLDERS, **GPT_FOLDERS, **MAMBA_FOLDERS,
               **LAST_FOLDERS, **NEWEST_FOLDERS, **LLAMA4_FOLDERS, **SPARSE_FOLDERS, **KIMI_FOLDERS, **MORE_FOLDERS, **LATEST_FOLDERS,
               **FURTHER_FOLDERS, **SEEING_FOLDERS, **BLOCK_FOLDERS, **SHARING_FOLDERS, **GATED_FOLDERS, **PRUNED_FOLDERS}
    cases = {**FOLDERS, **half(GGUF_FILES), **LATER_FOLDERS, **half(LATER_GGUF_FILES),
             **EXPERT_FOLDERS, **half(EXPERT_GGUF_FILES), **ROUTER_FOLDERS, **half(ROUTER_GGUF_FILES),
             **STATE_FOLDERS, **half(STATE_GGUF_FILES), **LATER_STATE_FOLDERS, **half(LATER_STATE_GGUF_FILES),
             **LATENT_FOLDERS, **half(LATENT_GGUF_FILES), **KIN_FOLDERS,
             **GPT_FOLDERS, **half(GPT_GGUF_FILES), **MAMBA2_FOLDERS, **half(MAMBA_GGUF_FILES),
             **FIRST_MAMBA_FOLDERS, **half(FIRST_MAMBA_GGUF_FILES), **LAST_FOLDERS, **half(LAST_GGUF_FILES),
             **NEWEST_FOLDERS, **half(NEWEST_GGUF_FILES),
             **LLAMA4_FOLDERS, **half(LLAMA4_GGUF_FILES), **SPARSE_FOLDERS, **half(SPARSE_GGUF_FILES),
             **KIMI_FOLDERS, **half(KIMI_GGUF_FILES), **MORE_FOLDERS, **half(MORE_GGUF_FILES), **LATEST_FOLDERS,
             **FURTHER_FOLDERS, **half(FURTHER_GGUF_FILES), **SEEING_FOLDERS, **BLOCK_FOLDERS, **SHARING_FOLDERS, **GATED_FOLDERS, **PRUNED_FOLDERS,
             **half(DELTA_GGUF_FILES)}
    for seed, (name, (kind, options, dtype_name)) in enumerate(cases.items()):
        if only and name not in only:
            continue
        dtype = getattr(torch, dtype_name)
        model = make_model(kind, options, dtype, seed)
        save_file(expected_values(model, seed), out / f"{name}.expected.safetensors")
        if name in folders:
            write_folder(out / name, name, model, dtype)
        else:
            write_gguf(out / f"{name}.gguf", kind, model)
        print(name)


if __name__ == "__main__":
    main()
