"""LoRA adapters of random numbers for SmolLM2-135M, as PEFT writes them."""

import array
import json
import random

HIDDEN, HEADS, KV_HEADS, HEAD, FFN = 576, 9, 3, 64, 1536  # SmolLM2-135M
MATRICES = {
    "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
    "mlp.gate_proj": (FFN, HIDDEN),
    "mlp.down_proj": (HIDDEN, FFN),
}


def write_adapter(folder, seed, rank=4, layers=(2, 9, 20), config=(), hidden=HIDDEN):
    """A random PEFT folder that changes answers much."""
    rng = random.Random(seed)
    header, data, offset = {}, [], 0
    for layer in layers:
        for module, (rows, columns) in MATRICES.items():
            columns = hidden if columns == HIDDEN else columns
            for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                values = array.array("f", (rng.gauss(0, 0.15) for _ in range(shape[0] * shape[1]))).tobytes()
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{side}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(values)]}
                data.append(values)
                offset += len(values)
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))
    settings = dict(peft_type="LORA", r=rank, lora_alpha=2 * rank, bias="none", target_modules=list(MATRICES))
    (folder / "adapter_config.json").write_text(json.dumps({**settings, **dict(config)}))
    return folder
