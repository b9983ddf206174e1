"""A server with draft heads for its model (EAGLE-3, EAGLE, Medusa) answers as one without, and says so where they are mostly wrong.

The heads are random: nothing that they propose is right but by chance."""

import json
import random
import struct
import subprocess

import pytest

from conftest import BINARY, MODEL, NAME, RunningServer

HIDDEN, VOCAB, HEADS, KV_HEADS, HEAD_DIM, FFN, DRAFT_VOCAB = 576, 49152, 9, 3, 64, 64, 128
SHAPE = dict(hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
             head_dim=HEAD_DIM, rms_norm_eps=1e-5, rope_theta=1e4, max_position_embeddings=2048, hidden_act="silu", vocab_size=VOCAB)


def write_safetensors(path, tensors):
    """{name: shape or list of whole numbers}: random F16 of such a shape, or I64."""
    noise = struct.pack("<4093e", *(random.Random(1).gauss(0, 0.03) for _ in range(4093)))
    header, parts, at = {}, [], 0
    for name, what in tensors.items():
        if isinstance(what, list):
            data, dtype, shape = struct.pack(f"<{len(what)}q", *what), "I64", [len(what)]
        else:
            size = 2
            for dimension in what:
                size *= dimension
            data, dtype, shape = (noise * (size // len(noise) + 1))[:size], "F16", list(what)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def layer(stem, columns):
    return {f"{stem}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, columns), f"{stem}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, columns),
            f"{stem}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, columns), f"{stem}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{stem}.post_attention_layernorm.weight": (HIDDEN,), f"{stem}.mlp.gate_proj.weight": (FFN, HIDDEN),
            f"{stem}.mlp.up_proj.weight": (FFN, HIDDEN), f"{stem}.mlp.down_proj.weight": (HIDDEN, FFN)}  # fmt: skip


def make_head(folder, kind, **changes):
    folder.mkdir(exist_ok=True)
    if kind == "medusa":
        config = dict(medusa_num_heads=2, medusa_num_layers=1)
        tensors = {"0.1.weight": (VOCAB, HIDDEN), "1.1.weight": (VOCAB, HIDDEN)}
        for index in (0, 1):
            tensors |= {f"{index}.0.linear.weight": (HIDDEN, HIDDEN), f"{index}.0.linear.bias": (HIDDEN,)}
    elif kind == "eagle":
        config = SHAPE | dict(architectures=["LlamaForCausalLM"])
        tensors = {"fc.weight": (HIDDEN, 2 * HIDDEN)} | layer("layers.0", HIDDEN)
    else:
        config = SHAPE | dict(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=DRAFT_VOCAB)
        tensors = {"fc.weight": (HIDDEN, 3 * HIDDEN), "norm.weight": (HIDDEN,), "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
                   "midlayer.input_layernorm.weight": (HIDDEN,), "midlayer.hidden_norm.weight": (HIDDEN,),
                   "d2t": [3 * i + 40000 for i in range(DRAFT_VOCAB)]} | layer("midlayer", 2 * HIDDEN)  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | changes))
    write_safetensors(folder / ("medusa_lm_head.safetensors" if kind == "medusa" else "model.safetensors"), tensors)
    return folder


def ask(server, **options):
    answer = server.client().chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Count from one to twenty."}], max_tokens=100, seed=7, **options)
    return [(choice.message.content, choice.finish_reason) for choice in answer.choices]


@pytest.fixture(scope="module")
def plain():
    server = RunningServer("--device", "cpu", "--max-model-len", "512", "--no-jump-ahead")
    yield server.wait_ready()
    server.kill()


TREE = {"speculative_token_tree": "[(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]"}


@pytest.mark.parametrize("kind, tree", [("eagle3", {}), ("eagle", {}), ("medusa", {}), ("eagle", {"tree_width": 3}), ("medusa", TREE)])
def test_answers_are_those_without(plain, tmp_path, kind, tree):
    log = tmp_path / "log"
    config = {"method": kind, "model": str(make_head(tmp_path / kind, kind)), **({} if tree is TREE else {"num_speculative_tokens": 3}), **tree}
    server = RunningServer("--device", "cpu", "--max-model-len", "512", "--speculative-config", json.dumps(config), "--draft-p-min", "0",
                           log=log)
    try:
        server.wait_ready()
        for options in ({"temperature": 0}, {"temperature": 0.8, "n": 3}, {"temperature": 0, "response_format": {"type": "json_object"}}):
            for _ in range(2):
                assert ask(server, **options) == ask(plain, **options)
        assert server.metric("vllm:spec_decode_num_draft_tokens_total") > 0
        assert server.metric("headrace:draft_seconds_total") > 0
    finally:
        server.kill()


def test_what_does_not_fit_is_refused_in_a_line(tmp_path):
    for changes, method, named in (({"vocab_size": 32000}, "eagle3", "it reads 32000 tokens, and the model that it is to propose for has 49152"),
                                   ({}, "eagle", "its files are of method eagle3, not eagle"),
                                   ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 99]}}, "eagle3", "goes into layer 99"),
                                   ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}}, "eagle3",
                                    "takes rows of 1728 numbers, and the model that it is to propose for gives 1152")):  # fmt: skip
        head = make_head(tmp_path / "head", "eagle3", **changes)
        config = json.dumps({"method": method, "model": str(head)})
        run = subprocess.run([BINARY, "serve", "-m", MODEL, "--device", "cpu", "--port", "0", "--speculative-config", config],
                             capture_output=True, text=True, timeout=60)
        assert run.returncode != 0
        assert named in run.stderr and len(run.stderr.strip().splitlines()) == 1, run.stderr
