"""Random texts that are hard on tokenizers, the same for the same seed."""

import random
import unicodedata

SCRIPTS = [
    (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x58F),
    (0x5D0, 0x5EA), (0x620, 0x6D3), (0x900, 0x97F), (0x980, 0x9FF), (0xE01, 0xE5B), (0x10A0, 0x10FF),
    (0x1100, 0x11FF), (0x13A0, 0x13FD), (0x1E00, 0x1FFE), (0x3041, 0x30FF), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3), (0xA000, 0xA48C), (0x1F00, 0x1FFF), (0x10400, 0x1044F), (0x1D400, 0x1D7FF),
]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u180e", "\v"]
MARKS = [chr(c) for c in range(0x300, 0x36F)] + ["\u0903", "\u093f", "\u20dd", "\u0345"]
EMOJI = ["😀", "👨\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "🇩🇪", "🇫🇷", "👍🏽", "❤️", "1️⃣", "🧑\u200d🚀", "\ufe0f"]
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~§±²³¼½¾€…–—“”‘’«»、。「」！？·•×÷≠∑∞▁Ġ"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>",
           "[INST]", "[/INST]", "<|begin_of_text|>", "<|eot_id|>", "<start_of_turn>", "<0x0A>", "<0xE2>",
           "<table>", "<h1>", "<tool_call>", "<|", "|>", "<unused7>", "<|fim_prefix|>", "<｜User｜>", "▁"]
WORDS = ("the of and to in is that for it was I'm don't WE'LL you've he'd THEY'RE it's 'tis résumé naïve Straße "
         "İstanbul ΑΘΗΝΑ Привет мир שלום العربية हिन्दी ภาษาไทย 中文 日本語 한국어 ﬁn ǅ ſ K Å camelCase snake_case "
         "HTTPServer x86_64 3.14159 1,000,000 0xDEADBEEF 12:34:56 user@example.com https://a.b/c?d=e&f#g "
         "int main(){return 0;} C++ e.g. U.S.A. ① Ⅷ ½ m² 10% $99.99").split()


def any_character(rng):
    """Of any plane, private ones too, that Python's version of Unicode knows: later ones have no place in older tables."""
    while True:
        plane = rng.choice([0, 0, 0, 1, 1, 2, 3, 14, 15, 16])
        code = plane * 0x10000 + rng.randrange(0x10000)
        if unicodedata.category(chr(code)) not in ("Cn", "Cs"):
            return chr(code)


def assigned_character(rng):
    while True:
        c = any_character(rng)
        if unicodedata.category(c) != "Co":
            return c


def script_run(rng):
    low, high = rng.choice(SCRIPTS)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8)))


def digits(rng):
    kind = rng.choice(["0123456789", "0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "①②³¼Ⅻ〇", "𝟎𝟏𝟐"])
    return "".join(rng.choice(kind) for _ in range(rng.randint(1, 9)))


PARTS = [
    lambda r: r.choice(WORDS),
    lambda r: r.choice(WORDS) + " ",
    lambda r: " " + r.choice(WORDS),
    script_run,
    digits,
    lambda r: "".join(r.choice(SPACES) for _ in range(r.randint(1, 6))),
    lambda r: r.choice([" ", "\n", "\t"]) * r.randint(1, 40),
    lambda r: "".join(r.choice(SIGNS) for _ in range(r.randint(1, 5))),
    lambda r: r.choice(SIGNS) * r.randint(1, 20),
    lambda r: r.choice(EMOJI),
    lambda r: r.choice(WORDS) + "".join(r.choice(MARKS) for _ in range(r.randint(1, 4))),
    lambda r: r.choice(CONTROL),
    lambda r: "".join(assigned_character(r) for _ in range(r.randint(1, 5))),
    any_character,
    lambda r: chr(r.randrange(0x20)),
    lambda r: "".join(chr(r.randint(0x61, 0x7A)) for _ in range(r.randint(1, 60))),
]


def random_text(rng):
    return "".join(rng.choice(PARTS)(rng) for _ in range(rng.randint(0, 12)))


def random_texts(count, seed):
    rng = random.Random(seed)
    return [random_text(rng) for _ in range(count)]
