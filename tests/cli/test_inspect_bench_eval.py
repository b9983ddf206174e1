"""`headrace inspect`, `bench` and `eval` with the real model."""

import csv
import io
import json
import math
import pathlib

import pytest

LLAMA_BENCH_FIELDS = """build_commit build_number cpu_info gpu_info backends model_filename model_type
model_size model_n_params n_batch n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v
n_gpu_layers n_cpu_moe split_mode main_gpu no_kv_offload flash_attn devices tensor_split
tensor_buft_overrides load_mode embeddings no_op_offload no_host fit_target fit_min_ctx n_prompt
n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts""".split()


def test_inspect(program, model):
    assert "llama" in program.text("inspect", model)
    report = json.loads(program.text("inspect", model, "--json"))
    assert isinstance(report, dict)
    assert "token_embd.weight" in program.text("inspect", model, "--tensors")


def test_inspect_tells_positions_that_are_learned(program):
    models = pathlib.Path(__file__).resolve().parents[1] / "data" / "models"
    assert "positions      learned, 256\n" in program.text("inspect", models / "opt")
    assert "positions      RoPE, base 10000" in program.text("inspect", models / "falcon")


def test_inspect_of_a_truncated_file(program, model, tmp_path):
    path = tmp_path / "short.gguf"
    with open(model, "rb") as source:
        path.write_bytes(source.read(1000))
    assert "short.gguf" in program.error("inspect", path)
    assert "short.gguf" in program.error("run", "-p", "x", "-m", path)


def bench(program, model, form, *arguments):
    return program.text("bench", "-m", model, "-r", "2", "-t", "2", "-o", form, *arguments)


def test_bench_json_has_llama_benchs_fields(program, model):
    rows = json.loads(bench(program, model, "json", "-p", "16,8", "-n", "4", "-pg", "8,4"))
    assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [(16, 0), (8, 0), (0, 4), (8, 4)]
    for row in rows:
        assert set(LLAMA_BENCH_FIELDS) <= set(row)
        assert len(row["samples_ns"]) == len(row["samples_ts"]) == 2
        assert row["avg_ts"] > 0 and row["avg_ns"] > 0
        tokens = row["n_prompt"] + row["n_gen"]
        assert math.isclose(row["samples_ts"][0], tokens * 1e9 / row["samples_ns"][0], rel_tol=1e-6)
        assert row["n_threads"] == 2 and row["backends"] == "CPU"


def test_bench_markdown_table(program, model):
    lines = bench(program, model, "md", "-p", "8", "-n", "4").splitlines()
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    assert header == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    tests = [line.split("|")[6].strip() for line in lines[2:4]]
    assert tests == ["pp8", "tg4"]
    assert len({len(line) for line in lines[:4]}) == 1
    assert lines[-1].startswith("build: ")


def test_bench_csv_and_jsonl(program, model):
    text = bench(program, model, "csv", "-p", "8", "-n", "0")
    (row,) = csv.DictReader(io.StringIO(text))
    assert list(row)[: len(LLAMA_BENCH_FIELDS)] == LLAMA_BENCH_FIELDS
    lines = bench(program, model, "jsonl", "-p", "8", "-n", "4").splitlines()
    assert [json.loads(line)["n_gen"] for line in lines] == [0, 4]


def test_bench_of_several_streams(program, model):
    rows = json.loads(bench(program, model, "json", "-p", "0", "-n", "0", "-r", "1", "--streams", "1,2"))
    assert [row["n_streams"] for row in rows] == [1, 2]
    assert all(row["avg_ts"] > 0 for row in rows)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    words = "The quick brown fox jumps over the lazy dog, and then it sleeps. "
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(words * 20)
    return path


def test_perplexity(program, model, text_file):
    report = json.loads(
        program.text("eval", "perplexity", text_file, "-m", model, "-c", "64", "-o", "json")
    )
    assert report["n_ctx"] == 64
    assert report["windows"] == report["tokens"] // 64
    assert report["scored"] == report["windows"] * 31  # targets 33 .. 63
    assert 1 < report["perplexity"] < 20  # a text that repeats itself
    assert math.isclose(math.log(report["perplexity"]), report["mean_nll"], rel_tol=1e-9)


def test_perplexity_does_not_depend_on_the_batch(program, model, text_file, equal_bits):
    def perplexity(*flags):
        arguments = ("eval", "perplexity", text_file, "-m", model, "-c", "64", "-o", "json")
        text = program.text(*arguments, *equal_bits.flags, *flags, environment=equal_bits.environment)
        return json.loads(text)["perplexity"]

    alone = perplexity("--max-num-seqs", "1")
    assert perplexity("--max-num-seqs", "8") == alone
    assert perplexity("--max-num-batched-tokens", "16") == alone


def test_perplexity_at_default_flags_is_close_in_every_batch(program, model, text_file):
    """On a CPU with AMX the bits may differ: decisions 22 and 24."""
    def perplexity(*flags):
        arguments = ("eval", "perplexity", text_file, "-m", model, "-c", "64", "-o", "json")
        return json.loads(program.text(*arguments, *flags))["perplexity"]

    alone = perplexity("--max-num-seqs", "1")
    assert math.isclose(perplexity("--max-num-seqs", "8"), alone, rel_tol=0.02)
    assert math.isclose(perplexity("--max-num-batched-tokens", "16"), alone, rel_tol=0.02)


def test_perplexity_of_too_short_a_text(program, model, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("Too short.")
    assert "512" in program.error("eval", "perplexity", path, "-m", model)


def test_score_echoes_generated_logprobs_bit_for_bit(program, model, equal_bits):
    def score(ids, *flags):
        line = json.dumps({"id": "a", "prompt_ids": ids})
        arguments = ("eval", "score", "-", "-m", model, *equal_bits.flags, *flags)
        return json.loads(program.text(*arguments, stdin=line, environment=equal_bits.environment))

    prompt = [504, 2365, 6354, 16438, 27003]
    generated = score(prompt, "-n", "8")
    assert generated["prompt_logprobs"][0] is None
    assert len(generated["prompt_logprobs"]) == len(prompt)
    echoed = score(prompt + generated["tokens"])
    assert echoed["prompt_logprobs"][len(prompt) :] == generated["logprobs"]


def test_score_names_the_wrong_line(program, model):
    lines = '{"id": 1, "prompt_ids": [1, 2]}\n{"id": 2, "prompt_ids": ["x"]}\n'
    done = program.run("eval", "score", "-", "-m", model, stdin=lines, check=1)
    assert b"line 2" in done.stderr
