#!/usr/bin/env python3
"""Tiny encoders as GGUF files with the keys and names that llama.cpp's converter writes, and the vectors that transformers makes
with them, for src/stack's tests.

    python3 -m venv V && V/bin/pip install torch transformers==5.24.0 safetensors gguf
    V/bin/python tests/golden/make_encoder_gguf_cases.py    # writes tests/data/encoders/*.gguf and, of new ones, NAME/vectors.json

bert and modernbert are the models of tests/data/encoders/, whose vectors.json counts. nomic-bert is a new one. Of jina-bert-v2, which
transformers does not have, the vectors are those of the lines below. bert.gguf has a WordPiece, and tests/data/encoders/bert_texts.json
what HF tokenizers make of texts with it. bert_reranker.gguf is the converter's file of a class with a pooler, which it leaves out;
modernbert_classes.gguf is a new one, whose classes are of the mean, which its file does not say.
"""

import json
import math
import os
import random

import gguf
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import ModernBertConfig, ModernBertForSequenceClassification, NomicBertConfig, NomicBertModel

FOLDER = os.path.join(os.path.dirname(__file__), "../data/encoders")
LENGTHS = [1, 2, 7, 16, 44]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "sat", "on", "the", "mat", "##s", "##ting", "a", "un", "##know", "##n", "e",
         "##l", "l", "##e", "e", ".", "?", "\u4e2d", "\u56fd", "na", "##ive", "1", "##2", "-", "b", "##b", "c", "##c", "d", "##d", "f", "##f", "g"]
TEXTS = ["The cats sat on the mat.", "Unknown? cat-dog", "\u00c9l\u00e8ve na\u00efve", "\u4e2d\u56fd cat", "xyzzy cat", "", "  sitting   cats\t12 ",
         "[SEP] the cat", "bbcc" * 30, "CAT\u00adS"]


def write_json(value, *path):
    os.makedirs(os.path.join(FOLDER, *path[:-1]), exist_ok=True)
    with open(os.path.join(FOLDER, *path), "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
        file.write("\n")


class Writer:
    def __init__(self, name, architecture, layers=2, ffn=24, context=44):
        self.file = gguf.GGUFWriter(os.path.join(FOLDER, name + ".gguf"), architecture)
        self.names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture), layers)
        self.file.add_block_count(layers)
        self.file.add_context_length(context)
        self.file.add_embedding_length(16)
        self.file.add_feed_forward_length(ffn)
        self.file.add_head_count(2)
        self.file.add_causal_attention(False)

    def tensors(self, state):
        for name, value in state.items():
            new = self.names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert new, name
            self.file.add_tensor(new, value.float().contiguous().numpy())

    def write(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def add_word_piece(file):
    spelled = [w if w.startswith("[") and len(w) > 1 else w[2:] if w.startswith("##") else "\u2581" + w for w in WORDS]
    kinds = [gguf.TokenType.CONTROL if w.startswith("[") and len(w) > 1 else gguf.TokenType.NORMAL for w in WORDS]
    file.add_token_type_count(2)
    file.add_tokenizer_model("bert")
    file.add_tokenizer_pre("jina-v2-en")
    file.add_token_list(spelled)
    file.add_token_types(kinds)
    file.add_bos_token_id(2)
    file.add_eos_token_id(3)
    file.add_unk_token_id(1)
    file.add_sep_token_id(3)
    file.add_pad_token_id(0)
    file.add_mask_token_id(4)
    file.add_add_bos_token(True)
    file.add_add_eos_token(True)


def write_texts():
    vocab = {}
    for i, word in enumerate(WORDS):
        vocab.setdefault(word, i)
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    write_json([{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS], "bert_texts.json")


def pooled(hidden):
    return {"mean": hidden.mean(0).tolist(), "first": hidden[0].tolist()}


def draw(model):
    for name, value in model.named_parameters():
        if value.ndim == 1:
            value.data = torch.rand_like(value) * 0.4 + (0.8 if name.endswith("weight") else -0.2)


def make_nomic():
    torch.manual_seed(7)
    random.seed(7)
    model = NomicBertModel(NomicBertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                                           initializer_range=0.3, max_position_embeddings=48)).eval()
    draw(model)
    rows = []
    for length in LENGTHS:
        ids = [random.randrange(2, 40) for _ in range(length)]
        with torch.no_grad():
            rows.append({"ids": ids, **pooled(model(input_ids=torch.tensor([ids])).last_hidden_state[0])})
    write_json(rows, "nomic_bert", "vectors.json")
    writer = Writer("nomic_bert", "nomic-bert")
    writer.file.add_layer_norm_eps(model.config.layer_norm_eps)
    writer.file.add_rope_freq_base(float(model.config.rope_parameters["rope_theta"]))
    writer.file.add_pooling_type(gguf.PoolingType.MEAN)
    state = model.state_dict()
    print(list(state))
    writer.tensors(nomic_names(state))
    writer.write()


def nomic_names(state):
    """As the hub's files have them, from which the converter starts: queries, keys and values joined, fc11 up, fc12 gate."""
    names = {"embeddings.word_embeddings": "embeddings.word_embeddings", "embeddings.token_type_embeddings": "embeddings.token_type_embeddings",
             "embeddings.LayerNorm": "emb_ln"}
    out = {}
    for layer in range(2):
        old, new = f"encoder.layers.{layer}.", f"encoder.layers.{layer}."
        find = lambda part: next(v for k, v in state.items() if f"layers.{layer}." in k and part in k and k.endswith("weight"))
        out[new + "attn.Wqkv.weight"] = torch.cat([find("q_proj"), find("k_proj"), find("v_proj")])
        out[new + "attn.out_proj.weight"] = find("o_proj")
        out[new + "mlp.fc11.weight"], out[new + "mlp.fc12.weight"], out[new + "mlp.fc2.weight"] = find("up_proj"), find("gate_proj"), find("down_proj")
        for kind in ("weight", "bias"):
            norms = [v for k, v in state.items() if f"layers.{layer}." in k and "norm" in k.lower() and k.endswith(kind)]
            out[new + "norm1." + kind], out[new + "norm2." + kind] = norms
    for key, value in state.items():
        for begin, name in names.items():
            if key.startswith(begin + "."):
                out[name + key[len(begin):]] = value
    return out


def jina_hidden(state, ids):
    """JinaBert (Guenther et al., 2023): scores lose by distance, networks have gates; norms stand behind."""
    norm = lambda x, name: torch.nn.functional.layer_norm(x, (16,), state[name + ".weight"], state[name + ".bias"], 1e-12)
    x = norm(state["embeddings.word_embeddings.weight"][ids] + state["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    positions = torch.arange(len(ids))
    away = (positions[:, None] - positions[None]).abs().float()
    for layer in range(2):
        at = f"encoder.layer.{layer}."
        linear = lambda x, name: x @ state[at + name + ".weight"].T + state.get(at + name + ".bias", 0)
        heads = [linear(x, "attention.self." + kind).view(-1, 2, 8).transpose(0, 1) for kind in ("query", "key", "value")]
        scores = heads[0] @ heads[1].transpose(1, 2) / math.sqrt(8) - torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * away
        seen = (scores.softmax(-1) @ heads[2]).transpose(0, 1).reshape(-1, 16)
        x = norm(x + linear(seen, "attention.output.dense"), at + "attention.output.LayerNorm")
        gated, plain = linear(x, "mlp.gated_layers").split(24, dim=-1)
        x = norm(x + linear(torch.nn.functional.gelu(gated) * plain, "mlp.wo"), at + "mlp.layernorm")
    return x


def make_jina():
    torch.manual_seed(8)
    random.seed(8)
    shapes = {"embeddings.word_embeddings.weight": (40, 16), "embeddings.token_type_embeddings.weight": (2, 16), "embeddings.LayerNorm": None}
    for layer in range(2):
        at = f"encoder.layer.{layer}."
        shapes |= {at + f"attention.self.{kind}.{part}": (16, 16) if part == "weight" else (16,)
                   for kind in ("query", "key", "value") for part in ("weight", "bias")}
        shapes |= {at + "attention.output.dense.weight": (16, 16), at + "attention.output.dense.bias": (16,),
                   at + "attention.output.LayerNorm": None, at + "mlp.gated_layers.weight": (48, 16), at + "mlp.wo.weight": (16, 24),
                   at + "mlp.wo.bias": (16,), at + "mlp.layernorm": None}
    state = {}
    for name, shape in shapes.items():
        if shape:
            state[name] = torch.randn(shape) * 0.3
        else:
            state[name + ".weight"], state[name + ".bias"] = torch.rand(16) * 0.4 + 0.8, torch.rand(16) * 0.4 - 0.2
    rows = []
    for length in LENGTHS:
        ids = [random.randrange(2, 40) for _ in range(length)]
        rows.append({"ids": ids, **pooled(jina_hidden(state, ids))})
    write_json(rows, "jina_bert", "vectors.json")
    writer = Writer("jina_bert", "jina-bert-v2")
    writer.file.add_layer_norm_eps(1e-12)
    writer.file.add_max_alibi_bias(8.0)
    writer.file.add_pooling_type(gguf.PoolingType.MEAN)
    writer.tensors(state)
    writer.write()


def write_modern(name, config, state):
    writer = Writer(name, "modern-bert", layers=4)
    writer.file.add_layer_norm_eps(config["norm_eps"])
    writer.file.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    writer.file.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.file.add_sliding_window(config["local_attention"])
    writer.file.add_sliding_window_pattern(3)
    if "classifier.out_proj.weight" in state:
        writer.file.add_pooling_type(gguf.PoolingType.RANK)
        writer.file.add_classifier_output_labels(list(config["id2label"].values()))
    else:
        writer.file.add_pooling_type(gguf.PoolingType.CLS)
    writer.tensors(state)
    writer.write()


def make_modern_classes():
    torch.manual_seed(9)
    random.seed(9)
    model = ModernBertForSequenceClassification(ModernBertConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2, initializer_range=0.3,
        max_position_embeddings=48, local_attention=8, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2,
        classifier_pooling="mean", num_labels=3)).eval()
    draw(model)
    rows = []
    for length in LENGTHS:
        ids = [random.randrange(2, 40) for _ in range(length)]
        with torch.no_grad():
            rows.append({"ids": ids, "logits": model(input_ids=torch.tensor([ids])).logits[0].tolist()})
    write_json(rows, "modernbert_classes", "logits.json")
    write_modern("modernbert_classes", model.config.to_dict(), {k.removeprefix("model.").replace("classifier.", "classifier.out_proj."): v for k, v in model.state_dict().items()})


def main():
    config = json.load(open(os.path.join(FOLDER, "bert/config.json")))
    writer = Writer("bert", "bert")
    writer.file.add_layer_norm_eps(config["layer_norm_eps"])
    writer.file.add_pooling_type(gguf.PoolingType.CLS)
    add_word_piece(writer.file)
    writer.tensors({k: v for k, v in load_file(os.path.join(FOLDER, "bert/model.safetensors")).items() if not k.startswith("pooler.")})
    writer.write()
    write_texts()

    config = json.load(open(os.path.join(FOLDER, "modernbert/config.json")))
    write_modern("modernbert", config, load_file(os.path.join(FOLDER, "modernbert/model.safetensors")))
    make_modern_classes()

    make_nomic()
    make_jina()

    writer = Writer("bert_reranker", "bert")
    writer.file.add_layer_norm_eps(1e-12)
    writer.file.add_pooling_type(gguf.PoolingType.RANK)
    writer.file.add_classifier_output_labels(["LABEL_0"])
    state = {k.removeprefix("bert."): v for k, v in load_file(os.path.join(FOLDER, "bert_reranker/model.safetensors")).items()}
    state = {k.replace("classifier.", "classifier.out_proj."): v for k, v in state.items() if not k.startswith("pooler.")}
    writer.tensors(state)
    writer.write()


if __name__ == "__main__":
    main()
