#!/usr/bin/env python3
"""A GGUF file of random weights, for speeds of shapes and types that no real file at hand has.

    bench/peers/random_gguf.py SHAPE TYPE FROM.gguf OUT.gguf      SHAPE: 135m, 1b; TYPE: q8_0, q4_0

Tokenizer and architecture (llama) are those of FROM, SmolLM2's file. Needs the `gguf` package of
llama.cpp (its gguf-py folder on PYTHONPATH) and numpy.
"""

import sys

import gguf
import numpy as np

SHAPES = {  # layers, hidden, heads, kv heads, feed-forward
    "135m": (30, 576, 9, 3, 1536),
    "1b": (16, 2048, 32, 8, 8192),
}
TYPES = {  # bytes of a block of 32, GGML's type, the file's
    "q8_0": (34, gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (18, gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}


def main() -> None:
    shape, kind, source, out = sys.argv[1:]
    layers, hidden, heads, kv_heads, ffn = SHAPES[shape]
    block_bytes, ggml_type, file_type = TYPES[kind]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    sizes = {
        "llama.block_count": layers, "llama.embedding_length": hidden,
        "llama.feed_forward_length": ffn, "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads, "general.file_type": int(file_type),
        "llama.rope.dimension_count": hidden // heads,
    }
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        if name in sizes:
            writer.add_uint32(name, sizes.pop(name))
        else:
            kinds = field.types
            sub_type = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kinds[0], sub_type=sub_type)
    for name, value in sizes.items():
        writer.add_uint32(name, value)
    vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
    rng = np.random.default_rng(1)

    def matrix(name: str, rows: int, columns: int) -> None:
        blocks = rng.integers(0, 256, (rows, columns // 32, block_bytes), dtype=np.uint8)
        scale = np.float16(1.0 / (columns ** 0.5 * (70 if kind == "q8_0" else 5)))
        blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
        writer.add_tensor(f"{name}.weight", blocks.reshape(rows, -1), raw_dtype=ggml_type)

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))

    matrix("token_embd", vocabulary, hidden)
    norm("output_norm")
    kv = hidden // heads * kv_heads
    for i in range(layers):
        norm(f"blk.{i}.attn_norm")
        norm(f"blk.{i}.ffn_norm")
        for name, rows, columns in (
            ("attn_q", hidden, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden), ("ffn_gate", ffn, hidden), ("ffn_up", ffn, hidden),
            ("ffn_down", hidden, ffn),
        ):
            matrix(f"blk.{i}.{name}", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
