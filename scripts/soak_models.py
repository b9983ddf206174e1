"""Shapes of models and sets of flags of the soak."""

import itertools
import math
import random

import soak_adapters

MODEL_LEN = 1024
SEQS = 48
SHARP = 2.2  # standard deviation of attention's scores: of 500 keys some four have most of a row's weight

CLASSES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3": "Gemma3ForCausalLM", "granite": "GraniteForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "olmo2": "Olmo2ForCausalLM", "starcoder2": "Starcoder2ForCausalLM", "phi3": "Phi3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "gpt_oss": "GptOssForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM", "lfm2": "Lfm2ForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
    "bamba": "BambaForCausalLM", "jamba": "JambaForCausalLM", "llama4_text": "Llama4ForCausalLM", "cohere": "CohereForCausalLM",
    "olmo_hybrid": "OlmoHybridForCausalLM", "kimi_linear": "KimiLinearForCausalLM", "minimax": "MiniMaxForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM", "recurrent_gemma": "RecurrentGemmaForCausalLM", "bloom": "BloomForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
}  # fmt: skip
NORMED_HEADS = ("qwen3", "qwen3_moe", "gemma3", "olmo2", "llama4_text", "cohere")
KEEPS_STATES = ("qwen3_5_text", "lfm2", "bamba", "jamba", "olmo_hybrid", "kimi_linear", "minimax", "recurrent_gemma")
GELU = ("gemma", "gemma2", "gemma3", "starcoder2")


def byte_pieces():
    """How byte-level vocabularies spell each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [spelled[byte] for byte in range(256)]


class Shape:
    def __init__(self, name, kind, heads, kv_heads, head_dim, hidden, vocab, layers=2, ffn=0, **more):
        self.name, self.kind, self.heads, self.kv_heads, self.head_dim = name, kind, heads, kv_heads, head_dim
        self.hidden, self.vocab, self.layers, self.more = hidden, vocab, layers, more
        self.ffn = ffn or 2 * hidden

    def config(self):
        config = {
            "architectures": [CLASSES[self.kind]], "model_type": self.kind, "hidden_size": self.hidden,
            "intermediate_size": self.ffn, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": self.vocab,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "bos_token_id": 1,
            "eos_token_id": 2, "tie_word_embeddings": True,
            "hidden_act": "gelu_pytorch_tanh" if self.kind in GELU else "silu",
        }  # fmt: skip
        return {**config, **self.more}

    def tokenizer(self):
        """A tokenizer.json of single bytes; what the vocabulary has beyond them is text that no merge makes."""
        specials = ["<unk>", "<s>", "</s>"]
        pieces = specials + byte_pieces()
        pieces += [f"w{token}" for token in range(len(pieces), self.vocab)]
        return {
            "added_tokens": [{"id": token, "content": specials[token], "special": True} for token in range(len(specials))],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {piece: token for token, piece in enumerate(pieces)}, "merges": []},
        }  # fmt: skip

    def has_experts(self):
        return any(key in self.more for key in ("num_experts", "num_local_experts", "n_routed_experts"))

    def keeps_states(self):
        return self.kind in KEEPS_STATES

    def keeps_latents(self):
        return "kv_lora_rank" in self.more

    def sharpness(self):
        """The factor of queries and keys with which scores have SHARP."""
        scale = self.head_dim**-0.5
        if "query_pre_attn_scalar" in self.more:
            scale = self.more["query_pre_attn_scalar"] ** -0.5
        scale = self.more.get("attention_multiplier", scale)
        each = 1.0 if self.kind in NORMED_HEADS else 0.02**2 * self.hidden
        return math.sqrt(SHARP / (scale * math.sqrt(self.head_dim) * each))

    def token_bytes(self, element=2):
        if self.keeps_latents():
            attending = len(self.more.get("linear_attn_config", {}).get("full_attn_layers", range(self.layers)))
            return (self.more["kv_lora_rank"] + self.more["qk_rope_head_dim"]) * attending * element
        kinds = self.more.get("layer_types", ["full_attention"] * self.layers)
        if self.kind in ("bamba", "jamba"):
            kinds = ["full_attention"]
        attending = sum(kind.endswith("attention") and kind != "linear_attention" for kind in kinds)
        return 2 * self.kv_heads * self.head_dim * attending * element


SHAPES = [
    Shape("h64", "llama", 8, 2, 64, 512, 32000),
    Shape("h64-mqa", "llama", 8, 1, 64, 512, 32001, layers=3),
    Shape("h64-mha", "llama", 8, 8, 64, 512, 32000),
    Shape("h64-group20", "llama", 20, 1, 64, 512, 32000),
    Shape("h80", "llama", 8, 4, 80, 640, 32000),
    Shape("h96", "llama", 8, 8, 96, 768, 32001),
    Shape("h96-phi3", "phi3", 8, 8, 96, 768, 32064, original_max_position_embeddings=4096),
    Shape("h100", "llama", 8, 2, 100, 800, 32000),
    Shape("h128", "llama", 8, 2, 128, 1024, 32000),
    Shape("h128-mqa", "llama", 8, 1, 128, 1024, 32001),
    Shape("h128-window", "mistral", 8, 2, 128, 512, 32000, sliding_window=160),
    Shape("h160", "llama", 4, 4, 160, 640, 32000),
    Shape("h256-gemma", "gemma", 8, 1, 256, 512, 32000),
    Shape("h256-gemma2", "gemma2", 8, 4, 256, 512, 32000, layers=4, sliding_window=128, attn_logit_softcapping=50.0,
          final_logit_softcapping=30.0, query_pre_attn_scalar=256, hidden_activation="gelu_pytorch_tanh",
          layer_types=["sliding_attention", "full_attention"] * 2),
    Shape("h256-gemma3", "gemma3", 4, 1, 256, 256, 262144, layers=6, sliding_window=128, query_pre_attn_scalar=256,
          rope_local_base_freq=10000.0, hidden_activation="gelu_pytorch_tanh",
          layer_types=["sliding_attention"] * 5 + ["full_attention"]),
    Shape("granite", "granite", 8, 2, 64, 512, 49155, attention_multiplier=0.015625, embedding_multiplier=12.0,
          residual_multiplier=0.22, logits_scaling=2.0),
    Shape("70b-heads", "llama", 64, 8, 128, 1024, 32000),
    Shape("8b-wide", "llama", 32, 8, 128, 4096, 32000, layers=1, ffn=8192),
    Shape("qwen2", "qwen2", 14, 2, 64, 896, 32001),
    Shape("qwen3", "qwen3", 8, 2, 128, 512, 32000, attention_bias=False),
    Shape("olmo2", "olmo2", 8, 8, 128, 512, 32000, attention_bias=False),
    Shape("smollm3", "smollm3", 8, 2, 128, 512, 32000, layers=4, no_rope_layers=[1, 1, 1, 0], use_sliding_window=False),
    Shape("starcoder2", "starcoder2", 8, 2, 128, 512, 49152, sliding_window=192, use_bias=True, norm_epsilon=1e-5),
    Shape("experts", "qwen3_moe", 8, 2, 128, 512, 32000, num_experts=32, num_experts_per_tok=4, moe_intermediate_size=256,
          norm_topk_prob=True, attention_bias=False),
    Shape("experts-shared", "qwen2_moe", 8, 8, 64, 512, 32001, num_experts=60, num_experts_per_tok=4,
          moe_intermediate_size=192, shared_expert_intermediate_size=384),
    Shape("sinks", "gpt_oss", 8, 2, 64, 512, 32000, layers=4, ffn=256, num_local_experts=16, num_experts_per_tok=4,
          sliding_window=128, attention_bias=True, swiglu_limit=7.0, tie_word_embeddings=False,
          layer_types=["sliding_attention", "full_attention"] * 2),
    Shape("delta-net", "qwen3_5_text", 8, 2, 128, 512, 32000, layers=4, attention_bias=False, linear_conv_kernel_dim=4,
          linear_key_head_dim=128, linear_num_key_heads=2, linear_num_value_heads=4, linear_value_head_dim=128,
          rope_parameters={"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
          layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"]),
    Shape("short-conv", "lfm2", 8, 2, 64, 512, 32000, layers=4, conv_L_cache=3, conv_bias=False, norm_eps=1e-5,
          block_auto_adjust_ff_dim=False, layer_types=["conv", "full_attention", "conv", "conv"]),
    Shape("mamba2", "bamba", 8, 2, 64, 512, 32000, layers=4, attn_layer_indices=[1], mamba_n_heads=16, mamba_d_head=64,
          mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False,
          attention_bias=False),
    Shape("mamba", "jamba", 8, 2, 64, 512, 32000, layers=4, attn_layer_period=4, attn_layer_offset=2, num_experts=8,
          num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=1, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2,
          mamba_dt_rank=32, mamba_conv_bias=True, mamba_proj_bias=False),
    Shape("latents", "deepseek_v2", 16, 16, 64, 512, 32000, layers=2, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64,
          qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=16, num_experts_per_tok=4, n_shared_experts=1,
          moe_intermediate_size=256, first_k_dense_replace=1, norm_topk_prob=False, routed_scaling_factor=1.0, n_group=1,
          topk_group=1, topk_method="greedy", attention_bias=False),
    Shape("deep-mha", "llama", 32, 32, 128, 256, 32000, layers=8),
    Shape("chunks", "llama4_text", 8, 2, 128, 512, 32000, layers=4, ffn=256, intermediate_size_mlp=1024, attention_chunk_size=128,
          attn_temperature_tuning=True, attn_scale=0.1, floor_scale=256, use_qk_norm=True, no_rope_layers=[1, 1, 1, 0],
          moe_layers=[1, 3], interleave_moe_layer_step=2, num_local_experts=16, num_experts_per_tok=1, attention_bias=False,
          layer_types=["chunked_attention"] * 3 + ["full_attention"]),
    Shape("head-norms", "cohere", 8, 2, 64, 512, 32000, use_qk_norm=True, layer_norm_eps=1e-5, logit_scale=0.5, attention_bias=False),
    Shape("delta-hybrid", "olmo_hybrid", 8, 2, 64, 512, 32000, layers=3, attention_bias=False, linear_allow_neg_eigval=True,
          linear_conv_kernel_dim=4, linear_key_head_dim=96, linear_num_key_heads=2, linear_num_value_heads=4,
          linear_value_head_dim=128, layer_types=["linear_attention", "full_attention", "linear_attention"]),
    Shape("kimi", "kimi_linear", 8, 8, 72, 512, 32000, layers=4, q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64,
          qk_nope_head_dim=128, v_head_dim=128, mla_use_nope=True, num_experts=16, num_experts_per_token=4, num_shared_experts=1,
          moe_intermediate_size=256, moe_renormalize=True, moe_router_activation_func="sigmoid", moe_layer_freq=1,
          first_k_dense_replace=1, num_expert_group=1, topk_group=1, routed_scaling_factor=1.8, attention_bias=False,
          linear_attn_config={"full_attn_layers": [3], "kda_layers": [1, 2, 4], "head_dim": 128, "num_heads": 4,
                              "short_conv_kernel_size": 4}),
    Shape("lightning", "minimax", 8, 2, 128, 512, 32000, layers=4, ffn=256, block_size=256, num_local_experts=8,
          num_experts_per_tok=2, full_attn_alpha_factor=2.5, full_attn_beta_factor=0.8, linear_attn_alpha_factor=3.0,
          linear_attn_beta_factor=1.2, mlp_alpha_factor=2.0, mlp_beta_factor=1.1,
          layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"]),
    Shape("chosen-keys", "deepseek_v32", 16, 16, 64, 512, 32000, layers=2, kv_lora_rank=512, q_lora_rank=256, qk_rope_head_dim=64,
          qk_nope_head_dim=128, v_head_dim=128, index_n_heads=16, index_head_dim=128, index_topk=96, n_routed_experts=16,
          num_experts_per_tok=4, n_shared_experts=1, moe_intermediate_size=256, first_k_dense_replace=1, norm_topk_prob=True,
          routed_scaling_factor=1.0, n_group=1, topk_group=1, attention_bias=False),
    Shape("recurrent", "recurrent_gemma", 4, 1, 128, 512, 32000, layers=4, ffn=2048, block_types=["recurrent", "recurrent", "attention"],
          attention_window_size=128, conv1d_width=4, lru_width=512, logits_soft_cap=30.0, attention_bias=False,
          hidden_activation="gelu_pytorch_tanh"),
    Shape("alibi", "bloom", 8, 8, 64, 512, 32000, n_head=8, n_layer=2, layer_norm_epsilon=1e-5, hidden_act="gelu_new"),
    Shape("alibi-h128", "bloom", 4, 4, 128, 512, 32001, n_head=4, n_layer=2, layer_norm_epsilon=1e-5, hidden_act="gelu_new"),
    Shape("narrow-values", "mimo_v2_flash", 8, 2, 192, 512, 32000, layers=4, v_head_dim=128, sliding_window=128, tie_word_embeddings=False,
          attention_bias=False, attention_value_scale=0.707, n_routed_experts=16, num_experts_per_tok=4, moe_intermediate_size=256,
          n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
          layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
          mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
          rope_parameters={"full_attention": {"partial_rotary_factor": 0.334, "rope_theta": 10000.0, "rope_type": "default"},
                           "sliding_attention": {"partial_rotary_factor": 0.334, "rope_theta": 10000.0, "rope_type": "default"}}),
]  # fmt: skip


class Flags:
    """`pool`: tokens of keys and values in the pool. `pressure`: counts of the server that must not be 0 at its end.
    `adapters`: so many, which requests name in turn, and the model itself. `drafts`: the model proposes for itself. `ranks`, `stages`: as many GPUs are needed. (On one, a kernel of one rank may hold the room that one waits for of the other.)"""

    def __init__(self, name, *flags, pool=MODEL_LEN * SEQS // 2, pressure=(), page_bytes_min=0, policy="", ranks=1, stages=1, adapters=0, drafts=False):
        self.name, self.flags, self.pool, self.pressure, self.ranks = name, list(flags), pool, pressure, ranks
        self.gpus = ranks * stages
        self.drafts = drafts  # whose keys and values lie in the same pages
        self.page_bytes_min, self.policy, self.adapters = page_bytes_min, policy, adapters
        if policy:
            self.flags += ["--policy", policy]
        if ranks > 1:
            self.flags += ["--tensor-parallel-size", str(ranks)]
        if stages > 1:
            self.flags += ["--pipeline-parallel-size", str(stages)]
        self.exact = "--batch-invariant" in flags

    def fits(self, shape):
        swaps, proposes = "--kv-offloading-size" in self.flags, "--speculative-config" in self.flags
        if shape.keeps_states() and (swaps or proposes):
            return False  # refused, or of no effect
        if shape.keeps_latents() and self.keeps_small():
            return False
        if self.keeps_4_bits() and shape.head_dim % 32 != 0:
            return False
        if self.drafts and (shape.keeps_states() or len(set(shape.more.get("layer_types", []))) > 1):
            return False
        if self.adapters and not soak_adapters.modules_of(shape):
            return False
        return 16 * shape.token_bytes(self.element()) >= self.page_bytes_min

    def keeps_small(self):
        """Whether keys and values have fewer bits than activations."""
        return "fp8" in self.flags or "int8" in self.flags or self.keeps_4_bits()

    def keeps_4_bits(self):
        return "int4" in self.flags

    def multiplies_fp8(self):
        return "--quantization=fp8" in self.flags

    def element(self):
        """Bytes of a component of a key."""
        return 1 if self.keeps_small() else 4 if "float32" in self.flags else 2


TIGHT = 2 * MODEL_LEN
# Whoever fits joins, and is preempted when those before it grow.
CROWDED = ("--admission-headroom", "0")
SWAP = (*CROWDED, "--kv-offloading-size", "0.5", "--preemption-mode", "swap")
DISK = (*CROWDED, "--kv-offloading-size", "0.01", "--kv-disk-size", "0.25", "--preemption-mode", "swap")
FP8 = ("--kv-cache-dtype", "fp8")
INT8 = ("--kv-cache-dtype", "int8")
INT4 = ("--kv-cache-dtype", "int4")
OUT_AND_BACK = ("preemptions", "pages_stored", "pages_loaded")
# Pages of 4 bits and their scales share bins less evenly, so that a pool of windows' pages may be large enough for all who run.
OUT_AND_BACK_OF_4_BITS = ("pages_stored", "pages_loaded")
# One token is match enough: texts of random weights repeat little.
NGRAM = ("--speculative-config", '{"method": "ngram", "prompt_lookup_min": 1}')

FLAGS = [
    Flags("default"),
    Flags("eager", "--enforce-eager"),
    Flags("graphs-at-start", "--graphs-at-start"),
    Flags("fp16", "--dtype", "float16"),
    Flags("fp32", "--dtype", "float32"),
    Flags("invariant", "--batch-invariant"),
    Flags("invariant-eager", "--batch-invariant", "--enforce-eager", "--no-gemm-trials"),
    Flags("kv-fp8", *FP8),
    Flags("kv-fp8-invariant", *FP8, "--batch-invariant"),
    Flags("kv-fp8-swap", *FP8, "--batch-invariant", *SWAP, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("kv-int8", *INT8),
    Flags("kv-int8-invariant", *INT8, "--batch-invariant"),
    Flags("kv-int8-swap", *INT8, "--batch-invariant", *SWAP, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("kv-int4", *INT4),
    Flags("kv-int4-invariant", *INT4, "--batch-invariant"),
    Flags("kv-int4-swap", *INT4, "--batch-invariant", *SWAP, pool=TIGHT, pressure=OUT_AND_BACK_OF_4_BITS),
    Flags("kv-int8-small-steps", *INT8, *NGRAM, "--max-num-batched-tokens", "48", pressure=("proposed",)),
    Flags("kv-fp8-small-steps", *FP8, *NGRAM, "--max-num-batched-tokens", "48", pressure=("proposed",)),
    Flags("small-steps", "--max-num-batched-tokens", "48", "--no-gemm-trials"),
    Flags("contiguous", "--kv-memory", "contiguous", pool=MODEL_LEN * 16),
    Flags("virtual", "--kv-memory", "virtual", page_bytes_min=2 << 20),
    Flags("tight-swap", *SWAP, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("invariant-swap", "--batch-invariant", *SWAP, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("tight-disk", *DISK, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("tight-recompute", *CROWDED, pool=TIGHT, pressure=("preemptions",)),
    Flags("ngram", *NGRAM, pressure=("proposed",)),
    Flags("invariant-ngram", "--batch-invariant", *NGRAM, pressure=("proposed",)),
    Flags("ngram-swap", *NGRAM, *SWAP, pool=TIGHT, pressure=(*OUT_AND_BACK, "proposed")),
    Flags("draft", drafts=True, pressure=("proposed",)),
    Flags("draft-eager", "--enforce-eager", "--draft-vocab", "20000", drafts=True, pressure=("proposed",)),
    Flags("draft-recompute", *CROWDED, "--draft-vocab", "20000", drafts=True, pool=TIGHT, pressure=("preemptions", "proposed")),
    Flags("invariant-draft", "--batch-invariant", "--draft-vocab", "20000", drafts=True, pressure=("proposed",)),
    Flags("adapters", adapters=5),
    Flags("invariant-adapters", "--batch-invariant", *NGRAM, adapters=5, pressure=("proposed",)),
    Flags("adapters-swap", *SWAP, adapters=3, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("adapters-q8", "--quantization", "q8_0", "--enforce-eager", adapters=5),
    Flags("packed-q8", "--quantization", "q8_0"),
    Flags("packed-q4", "--quantization", "q4_k", "--block-weights", "packed"),
    Flags("fp8", "--quantization=fp8"),
    Flags("fp8-fp16", "--quantization=fp8", *FP8, "--dtype", "float16"),
    Flags("invariant-fp8", "--batch-invariant", "--quantization=fp8", *NGRAM, pressure=("proposed",)),
    Flags("invariant-q4", "--batch-invariant", "--quantization", "q4_k"),
    Flags("no-prefix-cache", "--no-enable-prefix-caching"),
    Flags("no-overlap", "--no-overlap", "--no-split-prompts"),
    Flags("seccomp", "--seccomp"),
    Flags("seccomp-disk", "--seccomp", *DISK, pool=TIGHT, pressure=OUT_AND_BACK),
    Flags("policy-mlfq", policy="mlfq", pool=8 * MODEL_LEN),
    Flags("policy-priority", *SWAP, policy="priority", pool=TIGHT),
    Flags("policy-fair", "--batch-invariant", policy="fair", pool=8 * MODEL_LEN),
    Flags("policy-lpm", policy="lpm", pool=8 * MODEL_LEN),
    Flags("ranks", ranks=2),
    Flags("invariant-ranks", "--batch-invariant", *NGRAM, ranks=2),
    Flags("ranks-swap", "--graphs-at-start", *SWAP, pool=TIGHT, pressure=OUT_AND_BACK, ranks=2),
    Flags("stages", stages=2),
    Flags("invariant-stages", "--batch-invariant", "--graphs-at-start", stages=2),
    Flags("stages-swap", "--batch-invariant", *SWAP, pool=TIGHT // 2, pressure=OUT_AND_BACK, stages=2),
]  # fmt: skip


def named(rows, names):
    unknown = set(names) - {row.name for row in rows}
    if unknown:
        raise SystemExit(f"gpu_soak: no {', '.join(sorted(unknown))} (there are {', '.join(row.name for row in rows)})")
    return [row for row in rows if row.name in names or not names]


def plan(seed, shape_names, flag_names, device, gpus):
    """number -> shape and flags: every pair that goes together, in an order of its own each round."""
    shapes, flags = named(SHAPES, shape_names), named(FLAGS, flag_names)
    pairs = [(s, f) for s, f in itertools.product(shapes, flags) if device != "cuda" or (f.fits(s) and f.gpus <= gpus)]
    # A set of flags that few shapes go with takes as many starts as the others.
    most = max(sum(f is flag for _, f in pairs) for flag in flags)
    for flag in flags:
        own = [pair for pair in pairs if pair[1] is flag]
        if own and len(own) < most // 2:
            pairs += list(itertools.islice(itertools.cycle(own), most // 2 - len(own)))
    if not pairs:
        raise SystemExit("gpu_soak: none of these shapes goes with these flags")

    def at(number):
        round_, place = divmod(number, len(pairs))
        order = list(pairs)
        random.Random(f"{seed} order {round_}").shuffle(order)
        return order[place]

    return at
