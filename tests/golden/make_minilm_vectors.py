#!/usr/bin/env python3
"""What sentence-transformers makes of some texts with all-MiniLM-L6-v2, for tests/server/test_embeddings.py.

    python3 -m venv V && V/bin/pip install torch transformers==5.23.0 sentence-transformers==6.2.0
    V/bin/python tests/golden/make_minilm_vectors.py FOLDER       # the unpacked model; writes tests/data/golden/

Rows {text, tokens, vector}: the vector as base64 of little-endian f32.
"""

import base64
import json
import os
import sys

from sentence_transformers import SentenceTransformer

FILE = os.path.join(os.path.dirname(__file__), "../data/golden/minilm_vectors.jsonl")
TEXTS = [
    "a",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "Ein naïver Résumé über Straßencafés: \u00bfqué?",
    "東京 and 서울, emoji \U0001F600, zero\u200bwidth and\ttabs",
    "def f(x):\n    return {'a': x ** 2, \"b\": [1, 2.5e-3]}",
    "unbelievable counterintuitive internationalization " * 12,
    "word " * 254,
]


def main():
    model = SentenceTransformer(sys.argv[1], device="cpu")
    with open(FILE, "w", encoding="utf-8") as out:
        for text in TEXTS:
            vector = model.encode([text])[0]
            tokens = len(model.tokenizer(text)["input_ids"])
            row = {"text": text, "tokens": tokens, "vector": base64.b64encode(vector.astype("<f4").tobytes()).decode()}
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
