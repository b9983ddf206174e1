"""Hugging Face folders, whole: configuration, sharded weights, tokenizer, template, end ids."""

import json
import random
import struct

import pytest

HIDDEN, FFN, LAYERS, HEADS, VOCAB = 32, 64, 2, 4, 260
CONTROLS = ["<|begin|>", "<|end|>", "<|user|>", "<|stop|>"]


def byte_characters():
    """The 256 characters that stand for bytes in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    shown = {byte: chr(byte) for byte in plain}
    shown.update({byte: chr(256 + i) for i, byte in enumerate(others)})
    return [shown[byte] for byte in range(256)]


def write_safetensors(path, tensors):
    """tensors: name -> (shape, floats); stored as BF16."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        packed = b"".join(struct.pack("<f", value)[2:] for value in values)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def random_tensors():
    numbers = random.Random(7)
    layer = {
        "self_attn.q_proj": [HIDDEN, HIDDEN],
        "self_attn.k_proj": [HIDDEN // 2, HIDDEN],
        "self_attn.v_proj": [HIDDEN // 2, HIDDEN],
        "self_attn.o_proj": [HIDDEN, HIDDEN],
        "mlp.gate_proj": [FFN, HIDDEN],
        "mlp.up_proj": [FFN, HIDDEN],
        "mlp.down_proj": [HIDDEN, FFN],
        "input_layernorm": [HIDDEN],
        "post_attention_layernorm": [HIDDEN],
    }
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN]}
    for i in range(LAYERS):
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()})
        shapes[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = [4]
    tensors = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        mean = 1.0 if len(shape) == 1 else 0.0
        tensors[name] = (shape, [mean + numbers.uniform(-0.3, 0.3) for _ in range(count)])
    return tensors


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "tiny-llama"
    path.mkdir()
    tensors = random_tensors()
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    where = {name: shards[i % 2] for i, name in enumerate(tensors)}
    for shard in shards:
        write_safetensors(path / shard, {n: t for n, t in tensors.items() if where[n] == shard})
    vocabulary = {text: i for i, text in enumerate(CONTROLS + byte_characters())}
    files = {
        "model.safetensors.index.json": {"metadata": {}, "weight_map": where},
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": HIDDEN,
            "intermediate_size": FFN,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": HEADS // 2,
            "vocab_size": VOCAB,
            "max_position_embeddings": 256,
            "tie_word_embeddings": True,
            "eos_token_id": 1,
        },
        "generation_config.json": {"eos_token_id": [1, 3]},
        "tokenizer.json": {
            "version": "1.0",
            "added_tokens": [
                {"id": i, "content": text, "special": True, "normalized": False}
                | {"single_word": False, "lstrip": False, "rstrip": False}
                for i, text in enumerate(CONTROLS)
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        },
        "tokenizer_config.json": {"bos_token": "<|begin|>", "eos_token": "<|end|>"},
    }
    for name, value in files.items():
        (path / name).write_text(json.dumps(value))
    (path / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
    )
    return path


def report(program, folder):
    return json.loads(program.text("inspect", folder, "-o", "json"))


def test_run_uses_all_of_a_folder(program, folder):
    answer = json.loads(program.text("run", "-m", folder, "-p", "héllo", "-n", "8", "--json"))
    assert answer["model"] == "tiny-llama"
    assert answer["usage"]["prompt_tokens"] == 1 + 1 + 6 + 1  # begin, user, six bytes, end
    assert 1 <= len(answer["tokens"]) <= 8
    raw = program.text("run", "-m", folder, "-p", "héllo", "-n", "1", "--json", "--raw")
    assert json.loads(raw)["usage"]["prompt_tokens"] == 6


def test_end_ids_of_generation_config(program, folder):
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    first = json.loads(program.text("run", "-m", folder, "-p", "x", "-n", "1", "--json"))["tokens"][0]
    assert first not in ends
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, first]}))
    answer = json.loads(program.text("run", "-m", folder, "-p", "x", "-n", "8", "--json"))
    assert answer["finish_reason"] == "stop" and answer["tokens"] == [first]


def answer_to(program, folder, *flags):
    return json.loads(program.text("run", "-m", folder, "-p", "x", "-n", "8", "--ignore-eos", "--json", *flags))


def test_sampling_of_generation_config(program, folder, tmp_path):
    """The model's own where the command line says nothing; --generation-config as vLLM has it."""
    greedy = answer_to(program, folder)["tokens"]
    suggested = folder / "generation_config.json"
    suggested.write_text(json.dumps({"eos_token_id": 1, "temperature": 100, "max_new_tokens": 5}))
    warm = {tuple(answer_to(program, folder, "--seed", seed)["tokens"]) for seed in "1234"}
    assert len(warm) > 1 and all(len(tokens) == 5 for tokens in warm)
    assert "sampling       temperature 100, max_new_tokens 5" in program.text("inspect", folder)
    assert answer_to(program, folder, "--temperature", "0")["tokens"] == greedy[:5]
    assert answer_to(program, folder, "--generation-config", "vllm")["tokens"] == greedy
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text('{"top_k": 1, "temperature": 1}')
    assert answer_to(program, folder, "--generation-config", other)["tokens"] == greedy
    override = ("--override-generation-config", '{"temperature": 0, "max_new_tokens": 2}')
    assert answer_to(program, folder, *override)["tokens"] == greedy[:2]


def test_wrong_generation_configs_say_what_helps(program, folder, tmp_path):
    run = ("run", "-m", folder, "-p", "x")
    (folder / "generation_config.json").write_text('{"top_p": 7}')
    message = program.error(*run)
    assert "generation_config.json: top_p" in message and "--generation-config vllm" in message
    assert str(tmp_path / "no") in program.error(*run, "--generation-config", tmp_path / "no")
    for text, named in (("{", "--override-generation-config"), ('{"temprature": 1}', "temprature")):
        message = program.error(*run, "--generation-config", "vllm", "--override-generation-config", text)
        assert named in message


def test_models_of_the_hugging_face_cache_are_found_by_name(program, folder, tmp_path):
    model = tmp_path / "hub" / "models--maker--tiny-1.5"
    (model / "snapshots").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0123abc")
    (model / "snapshots" / "0123abc").symlink_to(folder)
    run = ("run", "-m", "maker/tiny-1.5", "-p", "x", "-n", "8", "--ignore-eos", "--json")
    for environment in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        answer = json.loads(program.text(*run, environment=environment))
        assert answer["tokens"] == answer_to(program, folder)["tokens"]
        assert answer["model"] == "tiny-1.5"
    message = program.error("run", "-m", "maker/other", "-p", "x", environment={"HF_HOME": str(tmp_path)})
    assert "headrace pull maker/other" in message and str(tmp_path / "hub") in message


def test_inspect_of_a_folder(program, folder):
    found = report(program, folder)
    assert found["supported"] and found["problems"] == []
    assert found["architecture"] == "LlamaForCausalLM"
    assert found["types"] == [{"type": "BF16", "tensors": 20, "bytes": found["tensor_bytes"], "supported": True}]
    assert found["tokenizer"]["tokens"] == VOCAB and found["tokenizer"]["eos"] == 1
    assert found["chat_template"] and found["chat_template_compiles"]
    assert found["kv_bytes_per_token"] == 2 * 2 * LAYERS * HIDDEN // 2
    assert "yes" in program.text("inspect", folder)


@pytest.mark.parametrize(
    "name, text, part",
    [
        ("chat_template.jinja", "{% include 'x' %}", "include"),
        ("config.json", '{"architectures": ["RwkvForCausalLM"]}', "RwkvForCausalLM"),
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "WordLevel"}}', "WordLevel"),
        ("model-00002-of-00002.safetensors", "", "model-00002-of-00002.safetensors"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../a.safetensors"}}', "tensor a"),
    ],
)
def test_inspect_serve_and_run_refuse_in_the_same_words(program, folder, name, text, part):
    (folder / name).write_text(text)
    problem = report(program, folder)["problems"][0]
    assert part in problem
    assert problem in program.error("run", "-m", folder, "-p", "x")
    served = program.run("serve", folder, "--port", "0", check=1)
    assert problem in served.stderr.decode()
