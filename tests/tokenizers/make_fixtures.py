#!/usr/bin/env python3
"""Small trained tokenizers of each family and what HF tokenizers does with hard texts, for src/text's tests.

    V/bin/python tests/tokenizers/make_fixtures.py        # writes tests/data/text/tokenizers/

Each FAMILY.json is a tokenizer.json; each FAMILY.jsonl has rows {text, ids, plain?, decoded?}: ids with control tokens
parsed and special tokens added, `plain` with neither (left out where equal), `decoded` the text of `ids` without control tokens (likewise).
"""

import io
import json
import os
import sys

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import families
from random_texts import WORDS, random_texts

FOLDER = os.path.join(os.path.dirname(__file__), "../data/text/tokenizers")
ROWS = 16


def small_corpus():
    with open("/usr/share/common-licenses/BSD", encoding="utf-8") as file:
        yield from file.read().split("\n\n")
    yield from WORDS * 3


def small_byte_bpe(pre, ignore_merges=False, normalizer=None, bos=False):
    tokenizer = families.trained_byte_bpe(pre, 400, small_corpus())
    file = json.loads(tokenizer.to_str())
    file["model"]["ignore_merges"] = ignore_merges
    tokenizer = Tokenizer.from_str(json.dumps(file))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", normalized=False, special=True)])
    if bos:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), (
            processors.TemplateProcessing("<|endoftext|> $A", "<|endoftext|> $A $B",
                                          [("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))]))])
    return tokenizer


def small_character_bpe(style, user):
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    trained.train_from_iterator(small_corpus(), trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + user
    tokens = first + [t for t, _ in sorted(model["vocab"].items(), key=lambda i: i[1]) if t not in first]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    tokenizer = families.character_bpe(tokens, merges, first[:3], user, style)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return tokenizer


def small_charsmap():
    """A compiled normaliser of a few rules, single and overlapping."""
    rules = "".join("\t".join([" ".join(f"{ord(c):X}" for c in source), " ".join(f"{ord(c):X}" for c in target)]) + "\n"
                    for source, target in [("ﬁ", "fi"), ("①", "1"), ("é", "e"), ("…", "..."), ("\t", " "), ("　", " "),
                                           ("ｶﾞ", "ガ"), ("ｶ", "カ"), ("\u200b", ""), ("m²", "m2")])
    path = "/tmp/small_rules.tsv"
    with open(path, "w", encoding="utf-8") as file:
        file.write(rules)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=model,
                                             vocab_size=16, hard_vocab_limit=False, minloglevel=2,
                                             normalization_rule_tsv=path)
    return families.sentencepiece_vocab(model.getvalue()).normalizer_spec.precompiled_charsmap


def small_t5():
    return families.trained_unigram(300, normalizers.Sequence([
        normalizers.Precompiled(small_charsmap()), normalizers.Strip(False, True),
        normalizers.Replace(Regex(" {2,}"), "▁")]), pre_tokenizers.Metaspace("▁", "always"), False, small_corpus())


def small_albert():
    return families.trained_unigram(550, normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(" {2,}"), " ")]), pre_tokenizers.Metaspace("▁", "first"), True, small_corpus())


FIXTURES = {
    "gpt2": lambda: small_byte_bpe("gpt2"),
    "starcoder2": lambda: small_byte_bpe("smollm"),
    "llama3": lambda: small_byte_bpe("llama3", ignore_merges=True, bos=True),
    "qwen2": lambda: small_byte_bpe("qwen2", normalizer=normalizers.NFC()),
    "cl100k": lambda: small_byte_bpe("cl100k"),
    "o200k": lambda: small_byte_bpe("o200k"),
    "tekken": lambda: small_byte_bpe("tekken", ignore_merges=True),
    "deepseek_v3": lambda: small_byte_bpe("deepseek-v3"),
    "deepseek_coder": lambda: small_byte_bpe("deepseek-coder"),
    "llama2": lambda: small_character_bpe("legacy", []),
    "mistral": lambda: small_character_bpe("metaspace", ["[INST]"]),
    "gemma": lambda: small_character_bpe("gemma", ["▁▁", "▁▁▁", "▁▁▁▁", "\n", "\n\n", "<h1>"]),
    "t5": small_t5,
    "albert": small_albert,
    "every_step": lambda: families.every_step(small_corpus(), 400),
    "bert": lambda: families.trained_wordpiece(500, small_corpus()),
    "bert_cased": lambda: families.trained_wordpiece(500, small_corpus(), lowercase=False),
    "falcon": lambda: small_byte_bpe("falcon"),
    "kimi_k2": lambda: small_byte_bpe("kimi-k2", ignore_merges=True),
    "youtu": lambda: small_byte_bpe("youtu", ignore_merges=True),
}


def row(tokenizer, text):
    tokenizer.encode_special_tokens = False
    ids = tokenizer.encode(text).ids
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False)
    controls = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special and t.content not in ("<unk>", "[UNK]")}
    result = {"text": text, "ids": ids}
    # HF's unigram model makes control tokens of plain text that spells them; ours does not.
    if plain.ids != ids and not controls & set(plain.ids):
        result["plain"] = plain.ids
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    return result if decoded == text else result | {"decoded": decoded}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    only = sys.argv[1:]
    for seed, (name, make) in enumerate(FIXTURES.items()):
        if only and name not in only:
            continue
        tokenizer = make()
        file = json.loads(tokenizer.to_str())
        tokenizer = Tokenizer.from_str(json.dumps(file))
        with open(f"{FOLDER}/{name}.json", "w", encoding="utf-8") as out:
            json.dump(file, out, ensure_ascii=False, separators=(",", ":"))
        texts = [t for t in random_texts(400, 1000 + seed) if 20 < len(t) < 140][:ROWS]
        with open(f"{FOLDER}/{name}.jsonl", "w", encoding="utf-8") as out:
            for text in texts:
                out.write(json.dumps(row(tokenizer, text), ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, tokenizer.get_vocab_size(), len(texts))


if __name__ == "__main__":
    main()
