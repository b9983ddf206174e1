"""A tiny model of random weights with a real model's tokenizer and chat template: workers that start in a moment and answer
thousands of tokens a second, each as sensitive to a fault of state as a real one.

    tiny_worker_model.py REAL.gguf TINY.gguf
"""

import pathlib
import random
import struct
import sys

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD, FEED = 64, 2, 4, 2, 16, 128
SIZES = {"block_count": LAYERS, "embedding_length": WIDTH, "feed_forward_length": FEED, "attention.head_count": HEADS,
         "attention.head_count_kv": KV_HEADS, "rope.dimension_count": HEAD, "attention.key_length": HEAD,
         "attention.value_length": HEAD, "context_length": 4096}
UINT32, STRING, ARRAY = 4, 8, 9
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of a GGUF type
F32, F16 = 0, 1


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            if of in SCALARS:
                self.at += SCALARS[of] * count
            else:
                for _ in range(count):
                    self.skip(of)
        else:
            self.at += SCALARS[kind]


def metadata_of(real):
    """[(key, its bytes behind the key)] and how many tokens the vocabulary has."""
    reader = Reader(real)
    assert real[:4] == b"GGUF"
    reader.at = 4
    reader.number("I")
    reader.number("Q")
    pairs, tokens = [], 0
    for _ in range(reader.number("Q")):
        key, begin = reader.string(), reader.at
        kind = reader.number("I")
        if key == "tokenizer.ggml.tokens":
            tokens = struct.unpack_from("<IQ", real, reader.at)[1]
        reader.skip(kind)
        pairs.append((key, real[begin:reader.at]))
    return pairs, tokens


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def halves(rng, count):
    """F16 numbers of 1/32 to 1/4 and both signs."""
    table = bytes((b & 1) << 7 | (10 + (b >> 1) % 3) << 2 | (b >> 3) & 3 for b in range(256))
    both = bytearray(rng.randbytes(2 * count))
    both[1::2] = bytes(both[1::2]).translate(table)
    return bytes(both)


def floats(rng, count, low, high):
    return struct.pack(f"<{count}f", *(rng.uniform(low, high) for _ in range(count)))


def make(real, seed=1):
    """The file, and the bytes of its norms by name: what a worker has of them in its memory is found by them."""
    pairs, tokens = metadata_of(real)
    arch = "llama"
    kept = [(key, value) for key, value in pairs if key.removeprefix(arch + ".") not in SIZES and key != "general.file_type"]
    kept += [(f"{arch}.{key}", struct.pack("<II", UINT32, value)) for key, value in SIZES.items()]
    rng = random.Random(seed)
    tensors = [("token_embd.weight", (WIDTH, tokens), F16, halves(rng, WIDTH * tokens)),
               ("output.weight", (WIDTH, tokens), F16, halves(rng, WIDTH * tokens)),
               ("output_norm.weight", (WIDTH,), F32, floats(rng, WIDTH, 3, 5))]
    for layer in range(LAYERS):
        rows = {"attn_q": (WIDTH, HEADS * HEAD), "attn_k": (WIDTH, KV_HEADS * HEAD), "attn_v": (WIDTH, KV_HEADS * HEAD),
                "attn_output": (HEADS * HEAD, WIDTH), "ffn_gate": (WIDTH, FEED), "ffn_up": (WIDTH, FEED), "ffn_down": (FEED, WIDTH)}
        tensors += [(f"blk.{layer}.{name}.weight", shape, F16, halves(rng, shape[0] * shape[1])) for name, shape in rows.items()]
        tensors += [(f"blk.{layer}.{name}.weight", (WIDTH,), F32, floats(rng, WIDTH, 0.5, 2)) for name in ("attn_norm", "ffn_norm")]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kept)) + b"".join(string(key) + value for key, value in kept)
    body = b""
    for name, shape, kind, data in tensors:
        head += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += data + bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + body, {name: data for name, shape, kind, data in tensors if len(shape) == 1}


def make_file(real, tiny, seed=1):
    data, norms = make(pathlib.Path(real).read_bytes(), seed)
    pathlib.Path(tiny).write_bytes(data)
    return norms


if __name__ == "__main__":
    make_file(*sys.argv[1:3])
