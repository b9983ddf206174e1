"""embed() with a real encoder, against sentence-transformers."""

import base64
import json

import numpy
import pytest

from headrace import LLM, SamplingParams

from conftest import MODEL, ROOT, need


@pytest.fixture(scope="module")
def golden():
    lines = (ROOT / "tests/data/golden/minilm_vectors.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return rows, numpy.array([numpy.frombuffer(base64.b64decode(row["vector"]), dtype=numpy.float32) for row in rows])


def test_vectors_are_those_of_sentence_transformers(encoder, golden):
    rows, wanted = golden
    outputs = encoder.embed([row["text"] for row in rows])
    vectors = numpy.array([output.outputs.embedding for output in outputs])
    assert vectors.dtype == numpy.float32 and vectors.shape == wanted.shape
    assert ((vectors * wanted).sum(axis=1) > 0.9999).all()
    assert [len(output.prompt_token_ids) for output in outputs] == [row["tokens"] for row in rows]
    assert outputs[0].outputs.hidden_size == wanted.shape[1]


def test_one_text_ids_and_many(encoder, golden):
    rows, _ = golden
    text = rows[2]["text"]
    by_text = encoder.embed(text)[0].outputs.embedding
    assert (by_text == encoder.embed([encoder.get_tokenizer().encode(text)])[0].outputs.embedding).all()
    many = encoder.embed(["a"] * 1100 + [text])
    assert len(many) == 1101 and (many[-1].outputs.embedding == by_text).all()


def test_mistakes_are_named(encoder):
    with pytest.raises(ValueError, match="gives vectors and generates no text"):
        encoder.generate("x", SamplingParams())
    with pytest.raises(ValueError, match="256"):
        encoder.embed("word " * 300)
    classifier = LLM(str(ROOT / "tests/data/encoders/bert_classifier"))
    with pytest.raises(ValueError, match="gives classes"):
        classifier.embed([[5, 6]])


def test_a_decoder_gives_vectors_where_it_is_asked():
    llm = LLM(need(MODEL), runner="pooling", max_model_len=256)
    cats, kittens, law = (output.outputs.embedding for output in llm.embed(
        ["Cats sleep most of the day.", "Kittens sleep most of the day.", "The court has ruled on the tax."]))
    assert cats @ kittens > cats @ law
    assert numpy.linalg.norm(cats) == pytest.approx(1, abs=1e-3)
