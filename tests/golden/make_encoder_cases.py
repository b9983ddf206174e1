#!/usr/bin/env python3
"""Tiny random encoders, and the vectors that transformers makes of texts with them, for src/stack's tests.

    python3 -m venv V && V/bin/pip install torch transformers==5.23.0 safetensors
    V/bin/python tests/golden/make_encoder_cases.py        # writes tests/data/encoders/

Each folder is as sentence-transformers writes it; vectors.json has rows {ids, mean, first}: the pooled last hidden
state in f32, before it is normalised. Distances of the longest text reach every kind of MPNet's buckets.
"""

import json
import os
import random

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel, RobertaConfig, RobertaModel

FOLDER = os.path.join(os.path.dirname(__file__), "../data/encoders")
SIZES = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
             hidden_dropout_prob=0, attention_probs_dropout_prob=0, initializer_range=0.3)
LENGTHS = [1, 2, 7, 16, 44]

CASES = {
    "bert": (BertModel, BertConfig(**SIZES, max_position_embeddings=48, type_vocab_size=2), "cls"),
    "roberta": (RobertaModel, RobertaConfig(**SIZES, max_position_embeddings=48, type_vocab_size=1, pad_token_id=1,
                                            hidden_act="gelu_new"), "mean"),
    "mpnet": (MPNetModel, MPNetConfig(**SIZES, max_position_embeddings=48, pad_token_id=1), "mean"),
}


def write_json(value, *path):
    os.makedirs(os.path.join(FOLDER, *path[:-1]), exist_ok=True)
    with open(os.path.join(FOLDER, *path), "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
        file.write("\n")


def main():
    for seed, (name, (make, config, pooling)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        random.seed(seed)
        model = make(config, add_pooling_layer=False).eval()
        for key, value in model.named_parameters():
            if "LayerNorm" in key or key.endswith("bias"):
                torch.nn.init.normal_(value, 1.0 if key.endswith("LayerNorm.weight") else 0.0, 0.2)
        config = model.config.to_dict() | {"architectures": [make.__name__]}
        write_json({k: v for k, v in config.items() if not k.startswith("_")}, name, "config.json")
        modules = ["", "1_Pooling", "2_Normalize"]
        types = ["Transformer", "Pooling", "Normalize"]
        write_json([{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
                    for i, (path, kind) in enumerate(zip(modules, types))], name, "modules.json")
        write_json({"word_embedding_dimension": 16, "pooling_mode_cls_token": pooling == "cls",
                    "pooling_mode_mean_tokens": pooling == "mean"}, name, "1_Pooling", "config.json")
        write_json({"max_seq_length": 44, "do_lower_case": False}, name, "sentence_bert_config.json")
        save_file({k: v.contiguous() for k, v in model.state_dict().items()},
                  os.path.join(FOLDER, name, "model.safetensors"))
        rows = []
        for length in LENGTHS:
            ids = [random.randrange(2, 40) for _ in range(length)]
            with torch.no_grad():
                hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            rows.append({"ids": ids, "mean": hidden.mean(0).tolist(), "first": hidden[0].tolist()})
        write_json(rows, name, "vectors.json")


if __name__ == "__main__":
    main()
