#!/usr/bin/env python3
"""Makes block_fixture.json and read_only_block_fixture.json: packed rows and what they mean, from
the `gguf` package.

    pip install gguf==0.19.0 numpy && python3 tests/data/weights/make_block_fixture.py

Floats are stored as their bit patterns, packed rows as hexadecimal. For each type:
  dequantise: packed rows with hard scales (zero, subnormal, negative, largest) and their floats
  quantise:   floats (ties, zeros, outliers) and the packed rows they become
Of the types that we only read: hexadecimal blocks, some with infinite and NaN scales, and of each
the FNV-1a hash of its floats' bits, any NaN taken as 7fc00000.
"""
import json
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

ROWS = 24
BLOCK = 32
SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x2E66, 0x7BFF, 0xFBFF]
LAYOUT = {Type.Q8_0: (1, 34), Type.Q4_0: (1, 18), Type.Q4_1: (2, 20), Type.F16: (0, 2), Type.BF16: (0, 2)}

# Bytes of a block and where its halves are.
READ_ONLY = {
    Type.Q5_0: (22, [0]), Type.Q5_1: (24, [0, 2]), Type.IQ4_NL: (18, [0]),
    Type.Q2_K: (84, [80, 82]), Type.Q3_K: (110, [108]), Type.Q4_K: (144, [0, 2]),
    Type.Q5_K: (176, [0, 2]), Type.Q6_K: (210, [208]), Type.IQ4_XS: (136, [0]),
}
NOT_FINITE = [0x7C00, 0xFC00, 0x7E01, 0xFD01]


def bits(values):
    return [int(v) for v in np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).ravel()]


def packed_rows(rng, halves, size):
    """Random blocks; the leading halves of the first ones are the hard scales."""
    rows = rng.integers(0, 256, (ROWS, size), dtype=np.uint8)
    for row in range(ROWS):
        for h in range(halves):
            scale = SCALES[(row + 3 * h) % len(SCALES)] if row < 2 * len(SCALES) else 0x2C00 + row
            rows[row, 2 * h : 2 * h + 2] = np.frombuffer(np.uint16(scale).tobytes(), np.uint8)
    return rows


def plain_rows(rng, kind):
    """Every kind of finite half or bfloat16."""
    values = rng.integers(0, 1 << 16, (ROWS, BLOCK), dtype=np.uint16)
    exponent_mask = 0x7C00 if kind == Type.F16 else 0x7F80
    values[(values & exponent_mask) == exponent_mask] &= 0x3FFF
    return values.view(np.uint8)


def float_rows(rng):
    rows = rng.normal(0, 0.02, (ROWS, BLOCK)).astype(np.float32)
    rows[0] = 0
    rows[1] = 1
    rows[2] = np.linspace(-127, 127, BLOCK, dtype=np.float32)  # ties of Q8_0
    rows[3] = np.linspace(-8, 7.5, BLOCK, dtype=np.float32)  # ties of Q4_0
    rows[4] = np.arange(BLOCK, dtype=np.float32) / 2  # ties of Q4_1
    rows[5, 7] = 1000  # one outlier
    rows[6] = -np.abs(rows[6])
    rows[7] *= 1e-7  # scales become subnormal halves
    return rows


def fnv1a(floats):
    words = np.where(np.isnan(floats), np.uint32(0x7FC00000), floats.view(np.uint32))
    value = 0xCBF29CE484222325
    for byte in words.astype("<u4").tobytes():
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def read_only_types(rng):
    scales = SCALES + NOT_FINITE
    fixture = {}
    for kind, (size, halves) in READ_ONLY.items():
        blocks = rng.integers(0, 256, (ROWS, size), dtype=np.uint8)
        for row, block in enumerate(blocks):
            for h, at in enumerate(halves):
                scale = scales[(row + 3 * h) % len(scales)] if row < len(scales) else 0x2C00 + row
                block[at : at + 2] = np.frombuffer(np.uint16(scale).tobytes(), np.uint8)
        with np.errstate(all="ignore"):
            fixture[kind.name] = {block.tobytes().hex(): fnv1a(dequantize(block[None], kind)) for block in blocks}
    return fixture


def write(name, fixture):
    path = pathlib.Path(__file__).with_name(name)
    path.write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


def main():
    rng = np.random.default_rng(20261121)
    fixture = {}
    for kind, (halves, size) in LAYOUT.items():
        packed = packed_rows(rng, halves, size) if halves else plain_rows(rng, kind)
        floats = float_rows(rng)
        fixture[kind.name] = {
            "dequantise": {"packed": packed.tobytes().hex(), "floats": bits(dequantize(packed, kind))},
            "quantise": {"floats": bits(floats), "packed": quantize(floats, kind).tobytes().hex()},
        }
    write("block_fixture.json", fixture)
    write("read_only_block_fixture.json", read_only_types(rng))


if __name__ == "__main__":
    main()
