"""`headrace quantize`: what it makes is read and answers, what it refuses it names, what is interrupted goes on."""

import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import time

import pytest

MODELS = pathlib.Path(__file__).resolve().parents[1] / "data" / "models"
FEW = ["--samples", "2", "--length", "64", "--no-perplexity", "-t", "2"]


def shapes_of(hidden, ffn, vocab):
    """The tensors of a llama of two layers."""
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    for layer in range(2):
        front = f"model.layers.{layer}."
        shapes |= {front + "input_layernorm.weight": (hidden,), front + "post_attention_layernorm.weight": (hidden,),
                   front + "self_attn.q_proj.weight": (hidden, hidden),
                   front + "self_attn.k_proj.weight": (hidden // 2, hidden),
                   front + "self_attn.v_proj.weight": (hidden // 2, hidden),
                   front + "self_attn.o_proj.weight": (hidden, hidden),
                   front + "mlp.gate_proj.weight": (ffn, hidden), front + "mlp.up_proj.weight": (ffn, hidden),
                   front + "mlp.down_proj.weight": (hidden, ffn)}
    return shapes


def write_folder(path, hidden=64, ffn=96, vocab=96):
    """A random one as a Hugging Face folder without a tokenizer."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": hidden // 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": vocab,
        "max_position_embeddings": 256, "hidden_act": "silu", "tie_word_embeddings": False,
        "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2}))
    numbers, header, data = random.Random(5), {}, b""
    for name, shape in shapes_of(hidden, ffn, vocab).items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = [numbers.gauss(0, 0.15) if len(shape) == 2 else 1.0 for _ in range(count)]
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * count]}
        data += struct.pack(f"<{count}e", *values)
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def rewrite(folder, change):
    """The tensors of a folder as `change` makes them of {name: (type, shape, bytes)}."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {name: (of["dtype"], of["shape"], data[8 + size :][slice(*of["data_offsets"])])
               for name, of in json.loads(data[8 : 8 + size]).items() if name != "__metadata__"}
    header, data = {}, b""
    for name, (dtype, shape, values) in change(tensors).items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_a_base_class_and_its_modules_come_along(program, tmp_path):
    """As models of vectors are saved: names without `model.`, and folders that say how rows become vectors."""
    source, out = write_folder(tmp_path / "float"), tmp_path / "out"
    rewrite(source, lambda tensors: {name.removeprefix("model."): of for name, of in tensors.items() if name != "lm_head.weight"})
    config = json.loads((source / "config.json").read_text()) | {"architectures": ["LlamaModel"]}
    (source / "config.json").write_text(json.dumps(config))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text("{}")
    (source / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "1_Pooling"}, {"path": "../x"}]))
    (source / "checkpoint-5").mkdir()  # of a trainer
    (source / "checkpoint-5" / "config.json").write_text("{}")
    program.text("quantize", source, out, "--method", "nearest", "--no-perplexity")
    names = struct.unpack("<Q", (out / "model.safetensors").read_bytes()[:8])
    header = json.loads((out / "model.safetensors").read_bytes()[8 : 8 + names[0]])
    assert "layers.0.self_attn.q_proj.weight_packed" in header
    assert (out / "1_Pooling" / "config.json").read_text() == "{}"
    assert not (out / "checkpoint-5").exists()
    program.text("quantize", source, source / "inside", "--method", "nearest", "--no-perplexity")
    assert (source / "inside" / "1_Pooling" / "config.json").exists() and not (source / "inside" / "inside.partial").exists()


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_learned_positions_are_those_of_the_calibration(program, tmp_path, method):
    source, data = tmp_path / "float", MODELS.parent
    shutil.copytree(data / "models" / "gpt-neo", source)
    shutil.copy(data / "pooled" / "qwen3_embedding" / "tokenizer.json", source)  # of 272 tokens

    def longer(tensors):
        dtype, (rows, columns), values = tensors["transformer.wte.weight"]
        row = len(values) // rows
        return tensors | {"transformer.wte.weight": (dtype, [272, columns], (values * 3)[: 272 * row])}

    rewrite(source, longer)
    config = json.loads((source / "config.json").read_text()) | {"vocab_size": 272}
    (source / "config.json").write_text(json.dumps(config))
    text = tmp_path / "text"
    text.write_text("What a river says to a mill is not what the mill hears of it. " * 40)
    program.text("quantize", source, tmp_path / "out", "--method", method, "--no-perplexity", "--calibration", text,
                 "--samples", "4", "--length", "64", "--group-size", "32")
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 0


@pytest.mark.parametrize("bits, flags", [(4, []), (4, ["--asymmetric"]), (8, [])])
def test_a_folder_becomes_one_that_is_read(program, tmp_path, bits, flags):
    source, out = write_folder(tmp_path / "float"), tmp_path / "out"
    program.text("quantize", source, out, "--method", "nearest", "--bits", bits, "--no-perplexity", *flags)
    assert program.text("inspect", out, "--tensors").count(f"INT{bits}-g32") >= 14
    config = json.loads((out / "config.json").read_text())
    assert config["hidden_size"] == 64
    made = config["quantization_config"]
    (group,) = made["config_groups"].values()
    assert made["quant_method"] == "compressed-tensors" and made["format"] == "pack-quantized"
    assert group["weights"]["num_bits"] == bits and group["weights"]["group_size"] == 32
    assert group["weights"]["symmetric"] == (not flags) and made["ignore"] == ["lm_head"]
    assert not list(tmp_path.glob("*.partial*"))


def test_a_gguf_becomes_one_that_answers(program, model, tmp_path):
    out = tmp_path / "out.gguf"
    done = program.run("quantize", model, out, "--type", "q5_k", *FEW, check=0, timeout=300)
    assert b"(tensor blk.0.attn_q.weight is Q4_1), and is rounded once more" in done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 30 and all(line.startswith("layer") for line in lines)
    shown = program.text("inspect", out, "--tensors")
    # Rows of 576 are no blocks of 256.
    assert shown.count("Q5_K") >= 30 and shown.count("Q5_1") >= 180
    answer = program.text("run", "-m", out, "-p", "What is the capital of France?", "-n", "16", "--temperature", "0")
    assert "Paris" in answer


def test_what_is_interrupted_goes_on_to_the_same_file(program, model, tmp_path):
    whole, out = tmp_path / "whole.gguf", tmp_path / "out.gguf"
    flags = ["--type", "q4_0", "--method", "awq", *FEW]
    program.text("quantize", model, whole, *flags, timeout=300)
    child = program.start("quantize", model, out, *flags)
    journal, deadline = tmp_path / "out.gguf.partial.json", time.monotonic() + 120
    while not (journal.exists() and len(json.loads(journal.read_text())["errors"]) > 2):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not out.exists()
    text = program.text("quantize", model, out, *flags, timeout=300)
    assert "layers are done already" in text
    assert out.read_bytes() == whole.read_bytes()
    assert not journal.exists() and not (tmp_path / "out.gguf.partial").exists()


def test_two_runs_do_not_make_one_thing(program, tmp_path):
    source, out = write_folder(tmp_path / "float"), tmp_path / "out"
    with open(tmp_path / "out.partial.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another" in program.error("quantize", source, out, "--method", "nearest", "--no-perplexity")
    program.text("quantize", source, out, "--method", "nearest", "--no-perplexity")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["float", "out"]


def test_what_is_no_runs_stays(program, tmp_path):
    source = write_folder(tmp_path / "float")
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "thesis.txt").write_text("mine")
    assert "interrupted" in program.error("quantize", source, tmp_path / "out", "--method", "nearest", "--no-perplexity")
    assert (tmp_path / "out.partial" / "thesis.txt").read_text() == "mine"


def test_a_model_that_changed_starts_anew(program, model, tmp_path):
    copy, out = tmp_path / "copy.gguf", tmp_path / "out.gguf"
    copy.write_bytes(model.read_bytes() if isinstance(model, pathlib.Path) else pathlib.Path(model).read_bytes())
    flags = ["--type", "q4_0", "--method", "awq", *FEW]
    child = program.start("quantize", copy, out, *flags)
    journal, deadline = tmp_path / "out.gguf.partial.json", time.monotonic() + 120
    while not (journal.exists() and len(json.loads(journal.read_text())["errors"]) > 0):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    os.utime(copy, (1, 1))
    child = program.start("quantize", copy, out, *flags)
    while len(json.loads(journal.read_text())["errors"]) > 0:
        assert child.poll() is None and time.monotonic() < deadline + 60
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()


def test_other_settings_start_anew(program, tmp_path):
    source, out = write_folder(tmp_path / "float"), tmp_path / "out"
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial.json").write_text(json.dumps({"settings": {"bits": 4}, "errors": [-1, -1]}))
    text = program.text("quantize", source, out, "--method", "nearest", "--no-perplexity")
    assert "done already" not in text and (out / "config.json").exists()


@pytest.mark.parametrize("name, says", [
    ("mixtral", "mixtures of experts"), ("lfm2", "not plain attention"),
    ("qwen3-awq", "quantise the model's float weights"), ("llama", "groups of 32 do not divide")])
def test_models_that_are_refused(program, tmp_path, name, says):
    message = program.error("quantize", MODELS / name, tmp_path / "out", "--method", "nearest", "--no-perplexity")
    assert says in message
    assert not list(tmp_path.iterdir())


def test_flags_that_are_refused(program, model, tmp_path):
    source, out = write_folder(tmp_path / "float"), tmp_path / "out"
    assert "--type" in program.error("quantize", model, out)
    assert "--type" in program.error("quantize", source, out, "--type", "q4_k")
    assert "--group-size" in program.error("quantize", source, out, "--method", "nearest", "--group-size", "48")
    assert "Q4_0" in program.error("quantize", model, out, "--type", "q4_k", "--method", "gptq")
    assert "required" in program.error("quantize", source)
    assert "--bits" in program.error("quantize", model, out, "--type", "q4_0", "--bits", "8")
    assert "is a folder" in program.error("quantize", source, out, "--method", "nearest", "--perplexity", tmp_path)
    out.mkdir()
    assert "is there already" in program.error("quantize", source, out)


def test_texts_that_are_too_short(program, model, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("A few words, and a few more.\n" * 40)
    flags = ["--type", "q4_0", "--method", "gptq", "--calibration", text, "--no-perplexity"]
    message = program.error("quantize", model, tmp_path / "out.gguf", *flags)
    assert "short.txt" in message and "need 65536" in message and "--samples" in message
    few = program.error("quantize", model, tmp_path / "out.gguf", *flags, "--samples", "2", "--length", "32")
    assert "too few for GPTQ" in few and "1536" in few
