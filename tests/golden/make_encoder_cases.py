#!/usr/bin/env python3
"""Tiny random encoders, and the vectors that transformers makes of texts with them, for src/stack's tests.

    python3 -m venv V && V/bin/pip install torch transformers==5.23.0 safetensors
    V/bin/python tests/golden/make_encoder_cases.py        # writes tests/data/encoders/

Each folder of an embedder is as sentence-transformers writes it; vectors.json has rows {ids, mean, first}: the pooled
last hidden state in f32, before it is normalised. Distances of the longest text reach every kind of MPNet's buckets.
Each folder of a classifier has a tokenizer.json, and logits.json with rows {first, second, ids, second_count, most,
logits} of pairs, and {text, ids, logits} of texts, as transformers' tokenizer and model give them; `most`: the length
that the pair was cut to, by "longest_first".
"""

import json
import os
import random

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (BertConfig, BertForSequenceClassification, BertModel, MPNetConfig,
                          MPNetForSequenceClassification, MPNetModel, ModernBertConfig,
                          ModernBertForSequenceClassification, ModernBertModel, PreTrainedTokenizerFast, RobertaConfig,
                          RobertaForSequenceClassification, RobertaModel, XLMRobertaConfig,
                          XLMRobertaForSequenceClassification)

FOLDER = os.path.join(os.path.dirname(__file__), "../data/encoders")
SIZES = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
             hidden_dropout_prob=0, attention_probs_dropout_prob=0, initializer_range=0.3)
LENGTHS = [1, 2, 7, 16, 44]
# Windows of 5 and 3 tokens on either side, which the longer texts go beyond.
MODERN = dict(vocab_size=40, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24,
              initializer_range=0.3, max_position_embeddings=48, pad_token_id=1, bos_token_id=0, eos_token_id=2,
              cls_token_id=0, sep_token_id=2, attn_implementation="eager")
BIASED = dict(attention_bias=True, mlp_bias=True, norm_bias=True, classifier_bias=True, local_attention=6,
              layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"])

CASES = {
    "bert": (BertModel, BertConfig(**SIZES, max_position_embeddings=48, type_vocab_size=2), "cls"),
    "roberta": (RobertaModel, RobertaConfig(**SIZES, max_position_embeddings=48, type_vocab_size=1, pad_token_id=1,
                                            hidden_act="gelu_new"), "mean"),
    "mpnet": (MPNetModel, MPNetConfig(**SIZES, max_position_embeddings=48, pad_token_id=1), "mean"),
    "modernbert": (ModernBertModel, ModernBertConfig(**MODERN, local_attention=10, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 900.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}), "cls"),
    "modernbert_biased": (ModernBertModel, ModernBertConfig(**MODERN, **BIASED, hidden_activation="gelu_new"), "mean"),
}


# Two of each family: one class and several, and the settings that files have of them.
CLASSIFIERS = {
    "bert_reranker": (BertForSequenceClassification,
                      BertConfig(**SIZES, max_position_embeddings=48, type_vocab_size=2, num_labels=1,
                                 sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"})),
    "bert_classifier": (BertForSequenceClassification,
                        BertConfig(**SIZES, max_position_embeddings=48, type_vocab_size=2,
                                   id2label={0: "bad", 1: "so so", 2: "good"})),
    "xlmr_reranker": (XLMRobertaForSequenceClassification,
                      XLMRobertaConfig(**SIZES, max_position_embeddings=50, type_vocab_size=1, pad_token_id=1,
                                       num_labels=1)),
    "roberta_classifier": (RobertaForSequenceClassification,
                           RobertaConfig(**SIZES, max_position_embeddings=50, type_vocab_size=2, pad_token_id=1,
                                         num_labels=2, problem_type="multi_label_classification")),
    "mpnet_reranker": (MPNetForSequenceClassification,
                       MPNetConfig(**SIZES, max_position_embeddings=50, pad_token_id=1, num_labels=1)),
    "modernbert_reranker": (ModernBertForSequenceClassification,
                            ModernBertConfig(**MODERN, local_attention=8, num_labels=1)),
    "modernbert_classifier": (ModernBertForSequenceClassification,
                              ModernBertConfig(**MODERN, **BIASED, classifier_pooling="mean", num_labels=3)),
}
WORDS = ["cat", "dog", "sat", "on", "the", "mat", "##s", "a", "what", "is", "?", "."]
PAIRS = [("what is a cat ?", "the dogs sat on the mat ."), ("cat", ""), ("the cats", "dog " * 60), ("dog " * 60, "a mat"),
         ("cat " * 40, "the dog " * 40), ("the cat " * 21, "mat " * 22)]


def make_bpe_tokenizer(specials):
    """A byte-level BPE that knows the letters and bytes of the pairs, as ModernBERT's."""
    letters = sorted({c for word in WORDS for c in word if c != "#"} | {"\u0120"})
    merges = [("t", "h"), ("th", "e"), ("c", "a"), ("\u0120", "the"), ("d", "o")]
    words = specials + letters + ["".join(merge) for merge in merges]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    tokenizer.add_special_tokens(specials)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 $B:0 </s>:0", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def make_tokenizer(form):
    """A WordPiece of a few words, or of ModernBERT a BPE, whose frame is of `form`."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    if form == "modernbert":
        return PreTrainedTokenizerFast(tokenizer_object=make_bpe_tokenizer(specials), bos_token="<s>",
                                       eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(specials + WORDS)}, unk_token="<unk>"))
    tokenizer.add_special_tokens(specials)
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    start, end = ("<s>", 0), ("</s>", 2)
    if form == "bert":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 $B:1 </s>:1", special_tokens=[start, end])
    elif form == "xlmr":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[start, end])
    else:
        tokenizer.post_processor = processors.RobertaProcessing(end, start, trim_offsets=True, add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   unk_token="<unk>")


def write_json(value, *path):
    os.makedirs(os.path.join(FOLDER, *path[:-1]), exist_ok=True)
    with open(os.path.join(FOLDER, *path), "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
        file.write("\n")


def main():
    for seed, (name, (make, config, pooling)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        random.seed(seed)
        modern = make is ModernBertModel
        model = (make(config) if modern else make(config, add_pooling_layer=False)).eval()
        draw_norms_and_biases(model)
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
    for seed, (name, (make, config)) in enumerate(CLASSIFIERS.items()):
        torch.manual_seed(100 + seed)
        make_classifier(name, make, config)


def draw_norms_and_biases(model):
    for key, value in model.named_parameters():
        norm = "LayerNorm" in key or "norm." in key
        if norm or key.endswith("bias"):
            torch.nn.init.normal_(value, 1.0 if norm and key.endswith(".weight") else 0.0, 0.2)


def make_classifier(name, make, config):
    model = make(config).eval()
    draw_norms_and_biases(model)
    # As files of real models have it: no more than what is not the default.
    written = model.config.to_diff_dict() | {"architectures": [make.__name__]}
    sizes = model.config.to_dict()
    for key in ("max_position_embeddings", "type_vocab_size", "pad_token_id", "hidden_act", "layer_norm_eps",
                "relative_attention_num_buckets"):
        if key in sizes:
            written[key] = sizes[key]
    if name.startswith("modernbert"):
        written |= {key: sizes[key] for key in sizes if key in ("norm_eps", "hidden_activation", "norm_bias")}
    if name == "modernbert_reranker":  # as the files of its makers, which transformers of their time wrote
        for key in ("layer_types", "rope_parameters"):
            written.pop(key, None)
        written |= {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    write_json({k: v for k, v in written.items() if not k.startswith("_")}, name, "config.json")
    save_file({k: v.contiguous() for k, v in model.state_dict().items()},
              os.path.join(FOLDER, name, "model.safetensors"))
    tokenizer = make_tokenizer(name.split("_")[0])
    tokenizer.backend_tokenizer.save(os.path.join(FOLDER, name, "tokenizer.json"))
    typed = name.startswith("bert")
    rows = []
    for first, second in PAIRS:
        for most in (46, 13):
            encoded = tokenizer([first], [second], truncation="longest_first", max_length=most, return_tensors="pt",
                                return_token_type_ids=True)
            types = encoded["token_type_ids"] if typed else torch.zeros_like(encoded["input_ids"])
            rows.append({"first": first, "second": second, "most": most, "ids": encoded["input_ids"][0].tolist(),
                         "second_count": int(types.sum()), "logits": logits_of(model, encoded["input_ids"], types)})
    for text in (PAIRS[0][0], "the", ""):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        rows.append({"text": text, "ids": ids[0].tolist(), "logits": logits_of(model, ids, torch.zeros_like(ids))})
    write_json(rows, name, "logits.json")


def logits_of(model, ids, types):
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.model_type == "bert":
        inputs["token_type_ids"] = types
    with torch.no_grad():
        return model(**inputs).logits[0].tolist()


if __name__ == "__main__":
    main()
