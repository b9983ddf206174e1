"""Causal attention of torch on the GPU beside attention_bench: cuDNN and FlashAttention-2 behind
scaled_dot_product_attention, contiguous keys and values, random data. One JSON line a measurement.

    python3 bench/peers/attention_sdpa.py
"""
import json

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LAUNCHES = 8


def measure(run):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(11):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(LAUNCHES):
            run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    return sorted(times)[len(times) // 2]


def main():
    for query_heads, kv_heads, dim in ((32, 8, 128), (32, 8, 64), (16, 8, 256)):
        for length in (512, 1024, 4096, 16384, 32768):
            batch = max(1, 16384 // length)
            q = torch.randn(batch, query_heads, length, dim, device="cuda", dtype=torch.bfloat16)
            k, v = (torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.bfloat16)
                    for _ in range(2))
            for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
                try:
                    with sdpa_kernel(backend):
                        us = measure(lambda: F.scaled_dot_product_attention(
                            q, k, v, is_causal=True, enable_gqa=True))
                except RuntimeError as error:
                    print(json.dumps({"peer": backend.name, "error": str(error)[:80]}))
                    continue
                flops = 4 * dim * query_heads * length * length / 2 * batch
                print(json.dumps({
                    "case": f"prefill d{dim} q{query_heads} kv{kv_heads} {batch}x{length}",
                    "peer": backend.name, "us": round(us, 2), "tflops": round(flops / us * 1e-6, 1),
                }), flush=True)


if __name__ == "__main__":
    main()
