"""Adapters of the soak: PEFT folders of random numbers for a shape."""

import array
import json
import os
import random

RANKS = (4, 16, 3, 24, 8)
POOL = 4096  # numbers that matrices are drawn from


def modules_of(shape):
    """(module of a layer, rows, columns) of the matrices that take adapters, as the files of its kind name them."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    hidden, ffn = shape.hidden, shape.ffn
    if shape.keeps_states() or shape.keeps_latents() or shape.kind in ("gpt_oss", "bloom", "mimo_v2_flash"):
        return []
    if shape.kind == "phi3":
        return [("self_attn.qkv_proj", queries + 2 * keys, hidden), ("self_attn.o_proj", hidden, queries),
                ("mlp.gate_up_proj", 2 * ffn, hidden), ("mlp.down_proj", hidden, ffn)]  # fmt: skip
    modules = [("self_attn.q_proj", queries, hidden), ("self_attn.k_proj", keys, hidden),
               ("self_attn.v_proj", keys, hidden), ("self_attn.o_proj", hidden, queries)]  # fmt: skip
    if shape.kind != "starcoder2" and not shape.has_experts():
        modules += [("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden), ("mlp.down_proj", hidden, ffn)]
    return modules


def write_adapters(shape, count, folder):
    """NAME=PATH of each: every second one is of attention alone."""
    return [write_adapter(shape, number, os.path.join(folder, f"adapter-{number}")) for number in range(count)]


def name_of(number):
    return f"adapter-{number}"


def write_adapter(shape, number, folder):
    rng = random.Random(f"adapter {number}")
    rank = RANKS[number % len(RANKS)]
    normal = [rng.gauss(0, 1) for _ in range(POOL)]
    header, data, offset = {}, [], 0
    modules = [row for row in modules_of(shape) if number % 2 == 0 or row[0].startswith("self_attn")]
    for layer in range(shape.layers):
        for module, rows, columns in modules:
            # What A makes of a normalised row is about 1, what B adds of it some tenths.
            for side, size, sigma in (("A", (rank, columns), columns**-0.5), ("B", (rows, rank), 0.1)):
                scaled = [sigma * value for value in normal]
                values = array.array("f", rng.choices(scaled, k=size[0] * size[1])).tobytes()
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{side}.weight"] = {
                    "dtype": "F32", "shape": size, "data_offsets": [offset, offset + len(values)]}  # fmt: skip
                data.append(values)
                offset += len(values)
    text = json.dumps(header).encode()
    os.makedirs(folder)
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text + b"".join(data))
    with open(os.path.join(folder, "adapter_config.json"), "w") as out:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none",
                   "target_modules": sorted({row[0].split(".")[1] for row in modules})}, out)  # fmt: skip
    return f"{name_of(number)}={folder}"
