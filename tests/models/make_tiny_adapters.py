#!/usr/bin/env python3
"""Makes random LoRA adapters of some models of tests/data/models and what Hugging Face PEFT computes
with them: the oracle of src/models/lora_adapter_test.cc. Run once by hand, its output is committed:

    pip install torch transformers peft safetensors
    python3 tests/models/make_tiny_adapters.py tests/data/models tests/data/adapters

An adapter is a PEFT folder <base>/; <base>.expected.safetensors holds, of one prompt, tokens [T] and
logits [T, V] of the model with the adapter (fp32, eager attention).
"""
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

TOKENS = 24
SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# What PEFT's LoraConfig is told of each base model.
ADAPTERS = {
    "llama-biases": dict(r=4, lora_alpha=8, target_modules=SEVEN, rank_pattern={"k_proj": 2, "layers.1.mlp.up_proj": 3},
                         alpha_pattern={"q_proj": 3}),
    "qwen2": dict(r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear"),
    "phi3": dict(r=4, lora_alpha=4, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "gemma2": dict(r=2, lora_alpha=8, target_modules=r".*\.(q_proj|o_proj|up_proj|down_proj)"),
}


def main(models, out):
    for base, options in ADAPTERS.items():
        torch.manual_seed(7)
        model = transformers.AutoModelForCausalLM.from_pretrained(models / base, dtype=torch.float32,
                                                                  attn_implementation="eager")
        adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
        for name, weight in adapted.named_parameters():
            if "lora_" in name:  # rounded to 16 bits, so that either way to keep them is exact
                weight.data = (0.4 * torch.randn_like(weight)).half().float()
        adapted.eval()
        tokens = torch.randint(3, model.config.vocab_size, (TOKENS,))
        with torch.no_grad():
            logits = adapted(tokens[None]).logits[0]
            with adapted.disable_adapter():
                difference = (adapted(tokens[None]).logits[0] - logits).abs().max()
        shutil.rmtree(out / base, ignore_errors=True)
        adapted.half().save_pretrained(out / base)
        (out / base / "README.md").unlink(missing_ok=True)
        print(base, "adapter changes logits by", float(difference))
        save_file(dict(tokens=tokens.int(), logits=logits.contiguous()), out / f"{base}.expected.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
