#!/usr/bin/env python3
"""Tiny random decoders that give vectors and scores, and what transformers makes of texts with them, for src/stack's
tests.

    python3 -m venv V && V/bin/pip install torch transformers==5.23.0 safetensors gguf jinja2
    V/bin/python tests/golden/make_pooled_decoder_cases.py        # writes tests/data/pooled/

Embedders: a folder as sentence-transformers writes it (qwen3_embedding: the last token's row, behind a text an end of
text that its tokenizer appends, normalised; llama_embedding: the mean) or as transformers does (qwen2_base), with
vectors.json of rows {text, ids, vector}: pooled final hidden states as those files say. Classifiers: logits.json of
rows {first, second, ids, logits} of pairs that stand one behind the other, and {query, document, ids, logits} of pairs
in template.jinja. qwen3_generating is the model of the score by the logits of two tokens; its logits are of "no" and
"yes". qwen3_rank.gguf is the same with these two rows as a head, as llama.cpp's converter writes Qwen3-Reranker.
"""

import json
import os
import random

import gguf
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (LlamaConfig, LlamaModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForSequenceClassification,
                          Qwen2Model, Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification, Qwen3Model)

FOLDER = os.path.join(os.path.dirname(__file__), "../data/pooled")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("y", "e"), ("ye", "s"), ("n", "o"), ("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "t"), ("Ġ", "c")]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
VOCAB = {token: i for i, token in enumerate(ALPHABET + [a + b for a, b in MERGES] + SPECIALS)}
END = VOCAB["<|endoftext|>"]
SIZES = dict(vocab_size=272, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, max_position_embeddings=256, initializer_range=0.3,
             tie_word_embeddings=True, eos_token_id=END, bos_token_id=None, pad_token_id=None)
TEXTS = ["the cat", "y", "yes, the cat sat on the mat", "", "ein längerer Text: " + "the cat " * 20]
PAIRS = [("what is a cat?", "the cat sat on the mat"), ("yes", "no"), ("a", ""), ("the cat " * 8, "the mat " * 9)]
TEMPLATE = """<|im_start|>system
Judge whether the Document meets the Query.<|im_end|>
<|im_start|>user
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""
PLACES = TEMPLATE[:TEMPLATE.index("{{")] + "{query}\n<Document>: {document}" + TEMPLATE[TEMPLATE.rindex("}}") + 2:-1]


def make_tokenizer(ends):
    tokenizer = Tokenizer(models.BPE(VOCAB, MERGES))
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if ends:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="$A <|endoftext|>", pair="$A <|endoftext|> $B:1 <|endoftext|>:1",
                                          special_tokens=[("<|endoftext|>", END)])])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>")


def write_json(value, *path):
    os.makedirs(os.path.join(FOLDER, *path[:-1]), exist_ok=True)
    with open(os.path.join(FOLDER, *path), "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
        file.write("\n")


def make_model(make, config, seed):
    torch.manual_seed(seed)
    model = make(config).eval()
    for key, value in model.named_parameters():
        if "norm" in key or key.endswith("bias"):
            torch.nn.init.normal_(value, 0.0 if key.endswith("bias") else 1.0, 0.2)
    return model


def save_model(name, model, tokenizer, written_class):
    written = model.config.to_dict() | {"architectures": [written_class]}
    write_json({k: v for k, v in written.items() if not k.startswith("_")}, name, "config.json")
    state = {k: v.contiguous() for k, v in model.state_dict().items()}
    state.pop("lm_head.weight", None)
    save_file(state, os.path.join(FOLDER, name, "model.safetensors"))
    tokenizer.backend_tokenizer.save(os.path.join(FOLDER, name, "tokenizer.json"))


def make_embedder(name, make, config, seed, pooling, normalise, modules=True, written_class=None):
    """`pooling` of sentence-transformers, None: the last token's row, as vLLM has it of a class without files."""
    model, tokenizer = make_model(make, config, seed), make_tokenizer(ends=pooling == "lasttoken")
    save_model(name, model, tokenizer, written_class or make.__name__)
    if modules:
        kinds = ["Transformer", "Pooling"] + (["Normalize"] if normalise else [])
        paths = ["", "1_Pooling", "2_Normalize"]
        write_json([{"idx": i, "name": str(i), "path": paths[i], "type": "sentence_transformers.models." + kind}
                    for i, kind in enumerate(kinds)], name, "modules.json")
        flag = {"lasttoken": "pooling_mode_lasttoken", "mean": "pooling_mode_mean_tokens"}[pooling]
        write_json({"word_embedding_dimension": 16, flag: True}, name, "1_Pooling", "config.json")
    rows = []
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        if not ids:
            continue
        with torch.no_grad():
            hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        vector = hidden.mean(0) if pooling == "mean" else hidden[-1]
        if normalise:
            vector = torch.nn.functional.normalize(vector, dim=0)
        rows.append({"text": text, "ids": ids, "vector": vector.tolist()})
    write_json(rows, name, "vectors.json")


def make_classifier(name, make, config, seed):
    model, tokenizer = make_model(make, config, seed), make_tokenizer(ends=False)
    save_model(name, model, tokenizer, make.__name__)
    write_scores(name, tokenizer, lambda ids: model(input_ids=ids).logits[0])
    return model, tokenizer


def write_scores(name, tokenizer, logits_of):
    with open(os.path.join(FOLDER, "template.jinja"), "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    rows = []
    for first, second in PAIRS:
        messages = [{"role": "query", "content": first}, {"role": "document", "content": second}]
        prompt = tokenizer.apply_chat_template(messages, chat_template=TEMPLATE, tokenize=False)
        for names, text in ((("first", "second"), first + second), (("query", "document"), prompt)):
            ids = tokenizer(text)["input_ids"]
            with torch.no_grad():
                logits = logits_of(torch.tensor([ids]))
            rows.append({names[0]: first, names[1]: second, "ids": ids, "logits": logits.tolist()})
    write_json(rows, name, "logits.json")


def write_rank_gguf(model):
    config = model.config
    writer = gguf.GGUFWriter(os.path.join(FOLDER, "qwen3_rank.gguf"), "qwen3")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    writer.add_chat_template([{"name": "rerank", "template": PLACES}])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    names = list(VOCAB) + [f"<|unused_{i}|>" for i in range(SIZES["vocab_size"] - len(VOCAB))]
    writer.add_token_list(names)
    writer.add_token_types([3 if name.startswith("<|") else 1 for name in names])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_eos_token_id(END)
    parts = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
             "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    outer = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight":
            writer.add_tensor("cls.output.weight", value[[VOCAB["yes"], VOCAB["no"]]].numpy())
            continue
        if name not in outer:
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            outer[name] = f"blk.{layer}.{parts[part]}.weight"
        writer.add_tensor(outer[name], value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    random.seed(0)
    os.makedirs(FOLDER, exist_ok=True)
    # As Qwen3-Embedding's folder: the class that generates, and names of tensors without it.
    make_embedder("qwen3_embedding", Qwen3Model, Qwen3Config(**SIZES), 1, "lasttoken", True,
                  written_class="Qwen3ForCausalLM")
    make_embedder("llama_embedding", LlamaModel, LlamaConfig(**SIZES), 2, "mean", False)
    make_embedder("qwen2_base", Qwen2Model, Qwen2Config(**SIZES | dict(tie_word_embeddings=False)), 3, None, True,
                  modules=False)
    make_classifier("qwen3_reranker", Qwen3ForSequenceClassification, Qwen3Config(**SIZES, num_labels=1), 4)
    make_classifier("qwen2_classifier", Qwen2ForSequenceClassification,
                    Qwen2Config(**SIZES, id2label={0: "bad", 1: "so so", 2: "good"}), 5)
    model, tokenizer = make_model(Qwen3ForCausalLM, Qwen3Config(**SIZES), 6), make_tokenizer(ends=False)
    save_model("qwen3_generating", model, tokenizer, "Qwen3ForCausalLM")
    rows = torch.tensor([VOCAB["no"], VOCAB["yes"]])
    write_scores("qwen3_generating", tokenizer, lambda ids: model(input_ids=ids).logits[0, -1, rows])
    write_rank_gguf(model)


if __name__ == "__main__":
    main()
