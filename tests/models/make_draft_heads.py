#!/usr/bin/env python3
"""Makes the draft heads of tests/data/drafts for tiny models of tests/data/models, in the formats of the hub, and what they
propose by PyTorch: the oracle of tests/models/draft_{engine,cuda}_test.cc. Run once by hand, its output is committed:

    pip install torch transformers==5.23.0 safetensors
    python3 tests/models/make_draft_heads.py tests/data/models tests/data/drafts

A head is trained for seconds on what its model answers to some prompts. expected.json has of each head these prompts, the
model's greedy answers (fp32), and how many tokens were proposed, and how many were right, where each verification has up to
PROPOSED of them."""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

TOKENS = 40  # of an answer
STEPS = 70  # of training: some of what is proposed is right
PROPOSED = 4
VOCAB = 96
DRAFT_VOCAB = 64
HEADS, KV_HEADS, HEAD_DIM, FFN = 4, 2, 8, 48
EPS, THETA = 1e-5, 10000.0
SHAPE = dict(hidden_size=32, intermediate_size=FFN, num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
             head_dim=HEAD_DIM, rms_norm_eps=EPS, rope_theta=THETA, max_position_embeddings=64, hidden_act="silu",
             vocab_size=VOCAB, model_type="llama")


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def rotate(x):  # [T, heads, HEAD_DIM]
    inv = THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.arange(x.shape[0])[:, None] * inv
    cos, sin = torch.cat([angles.cos()] * 2, -1)[:, None], torch.cat([angles.sin()] * 2, -1)[:, None]
    half = HEAD_DIM // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Layer(nn.Module):
    """Attention and network of a Llama's layer, which reads rows of `columns` numbers."""

    def __init__(self, hidden, columns):
        super().__init__()
        for name, rows in dict(q=HEADS, k=KV_HEADS, v=KV_HEADS).items():
            setattr(self, name, nn.Linear(columns, rows * HEAD_DIM, bias=False))
        self.o = nn.Linear(HEADS * HEAD_DIM, hidden, bias=False)
        self.ffn_norm = nn.Parameter(torch.ones(hidden))
        self.gate, self.up = nn.Linear(hidden, FFN, bias=False), nn.Linear(hidden, FFN, bias=False)
        self.down = nn.Linear(FFN, hidden, bias=False)

    def forward(self, x, read):
        rows = x.shape[0]
        q = rotate(self.q(read).view(rows, HEADS, HEAD_DIM)).transpose(0, 1)
        k = rotate(self.k(read).view(rows, KV_HEADS, HEAD_DIM)).transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0)
        v = self.v(read).view(rows, KV_HEADS, HEAD_DIM).transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(0, 1).reshape(rows, -1))
        y = norm(x, self.ffn_norm)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def tensors(self, stem):
        named = {f"self_attn.{n}_proj": getattr(self, n) for n in "qkvo"}
        named |= {f"mlp.{n}_proj": getattr(self, n) for n in ("gate", "up", "down")}
        found = {f"{stem}.{name}.weight": layer.weight for name, layer in named.items()}
        return found | {f"{stem}.post_attention_layernorm.weight": self.ffn_norm}


class Eagle(nn.Module):
    """EAGLE-1: its own embedding is its model's, as is its output matrix."""

    def __init__(self, model, ids):
        super().__init__()
        hidden = model.config.hidden_size
        self.embedding = model.get_input_embeddings().weight.detach()
        self.output = model.get_output_embeddings().weight.detach()
        self.fc, self.layer = nn.Linear(2 * hidden, hidden), Layer(hidden, hidden)

    @staticmethod
    def features(states):
        return states[-1]  # behind the final norm

    def start(self, features):
        return features

    def rows(self, tokens, features):
        x = self.fc(torch.cat([self.embedding[tokens], features], -1))
        return self.layer(x, x)

    def logits(self, rows):
        return rows @ self.output.T

    def files(self):
        tensors = {"fc.weight": self.fc.weight, "fc.bias": self.fc.bias, "embed_tokens.weight": self.embedding}
        return tensors | self.layer.tensors("layers.0"), SHAPE | dict(architectures=["LlamaForCausalLM"])


class Eagle3(nn.Module):
    """The rows of three layers, and a vocabulary of its own."""

    def __init__(self, model, ids):
        super().__init__()
        hidden, layers = model.config.hidden_size, model.config.num_hidden_layers
        self.at = (2, layers // 2, layers - 3)
        self.embedding = model.get_input_embeddings().weight.detach()
        self.ids = ids
        self.fc, self.layer = nn.Linear(3 * hidden, hidden, bias=False), Layer(hidden, 2 * hidden)
        self.in_norm, self.hidden_norm, self.norm = (nn.Parameter(torch.ones(hidden)) for _ in range(3))
        self.output = nn.Linear(hidden, len(ids), bias=False)

    def features(self, states):
        return torch.cat([states[i] for i in self.at], -1)

    def start(self, features):
        return self.fc(features)

    def rows(self, tokens, features):
        read = torch.cat([norm(self.embedding[tokens], self.in_norm), norm(features, self.hidden_norm)], -1)
        return self.layer(features, read)

    def logits(self, rows):
        logits = torch.full((rows.shape[0], VOCAB), -1e9)
        return logits.index_copy(1, self.ids, self.output(norm(rows, self.norm)))

    def files(self):
        stem = "midlayer"
        tensors = {"fc.weight": self.fc.weight, "norm.weight": self.norm, "lm_head.weight": self.output.weight,
                   f"{stem}.input_layernorm.weight": self.in_norm, f"{stem}.hidden_norm.weight": self.hidden_norm,
                   "d2t": self.ids - torch.arange(len(self.ids)),
                   "t2d": torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, self.ids, True)}
        config = dict(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=len(self.ids))
        return tensors | self.layer.tensors(stem), SHAPE | config


class Medusa(nn.Module):
    def __init__(self, model, ids):
        super().__init__()
        hidden = model.config.hidden_size
        self.blocks = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        self.outputs = nn.ModuleList(nn.Linear(hidden, VOCAB, bias=False) for _ in range(3))

    features = staticmethod(Eagle.features)

    def logits(self, head, rows):
        return self.outputs[head](rows + functional.silu(self.blocks[head](rows)))

    def files(self):
        tensors = {f"{i}.0.linear.{part}": getattr(block, part) for i, block in enumerate(self.blocks)
                   for part in ("weight", "bias")}
        tensors |= {f"{i}.1.weight": output.weight for i, output in enumerate(self.outputs)}
        return tensors, dict(medusa_num_heads=3, medusa_num_layers=1, base_model_name_or_path="llama")


def loss_of(head, tokens, features):
    """Of all rows of a text: what stands behind each, and behind that by what the head made of the one before."""
    if isinstance(head, Medusa):
        return sum(functional.cross_entropy(head.logits(k, features[:-2 - k]), tokens[2 + k:]) for k in range(3))
    rows = head.start(features[:-1])  # row i: token i + 1 beside the feature of token i
    loss = 0
    for ahead in range(3):
        rows = head.rows(tokens[1:], rows)
        logits = head.logits(rows)[ahead:-1]
        losses = functional.cross_entropy(logits, tokens[2 + ahead:], reduction="none")
        loss = loss + losses.clamp(max=20).mean()  # ids that the head has not cost what they may
        rows = torch.cat([rows[:1], rows[:-1]])  # of token i + 1 beside what was made of the one before
    return loss


def train(head, texts):
    optimiser = torch.optim.AdamW(head.parameters(), lr=4e-3)
    for _ in range(STEPS):
        loss = sum(loss_of(head, tokens, features) for tokens, features in texts) / len(texts)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


def proposals(head, tokens, features, count):
    """Behind these tokens, of which the features of the last but one are known."""
    if isinstance(head, Medusa):
        return [head.logits(k, features[len(tokens) - 2][None]).argmax().item() for k in range(min(count, 3))]
    rows, chain = head.start(features[:len(tokens) - 1]), list(tokens)
    for _ in range(count):
        made = head.rows(torch.tensor(chain[1:]), rows)
        chain.append(head.logits(made[-1:]).argmax().item())
        rows = torch.cat([rows, made[-1:]])
    return chain[len(tokens):]


def count(head, prompt, text, features, end):
    known, proposed, accepted, verifications = len(prompt) + 1, 0, 0, 0
    while known + 1 < len(text):  # behind what is proposed comes one more token
        drafted = proposals(head, text[:known], features, min(PROPOSED, len(text) - known - 1))
        if end in drafted:  # behind it nothing is proposed
            drafted = drafted[:drafted.index(end) + 1]
        right = 0
        while right < len(drafted) and drafted[right] == text[known + right]:
            right += 1
        proposed, accepted, verifications = proposed + len(drafted), accepted + right, verifications + 1
        known += right + 1
    return proposed, accepted, verifications


def main():
    models, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    expected = {}
    for name, model_name, made in (("eagle3", "smollm3", Eagle3), ("eagle", "llama", Eagle), ("medusa", "llama", Medusa)):
        torch.manual_seed(7)
        model = transformers.AutoModelForCausalLM.from_pretrained(models / model_name, dtype=torch.float32).eval()
        prompts = [torch.randint(3, VOCAB, (length,)).tolist() for length in (2, 5, 16, 17, 22, 9, 12, 20)]
        texts = []
        with torch.no_grad():
            for prompt in prompts:
                text = list(prompt)
                for _ in range(TOKENS):
                    text.append(model(torch.tensor([text])).logits[0, -1].argmax().item())
                texts.append(text)
            states = [model(torch.tensor([text]), output_hidden_states=True).hidden_states for text in texts]
        common = torch.bincount(torch.tensor(sum(texts, [])), minlength=VOCAB).argsort(descending=True)[:DRAFT_VOCAB]
        head = made(model, common.sort().values)
        features = [head.features([s[0] for s in each]) for each in states]
        loss = train(head, [(torch.tensor(text), rows) for text, rows in zip(texts, features)])
        with torch.no_grad():
            counts = [count(head, *each, model.config.eos_token_id) for each in zip(prompts, texts, features)]
        expected[name] = dict(model=model_name, answers=[
            dict(prompt=prompt, tokens=text[len(prompt):], proposed=c[0], accepted=c[1], verifications=c[2])
            for prompt, text, c in zip(prompts, texts, counts)])
        tensors, config = head.files()
        (out / name).mkdir(parents=True, exist_ok=True)
        file = "medusa_lm_head.safetensors" if name == "medusa" else "model.safetensors"
        save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()}, out / name / file)
        (out / name / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        totals = [sum(each) for each in zip(*counts)]
        print(f"{name}: loss {loss:.3f}, {totals[0]} proposed, {totals[1]} right in {totals[2]} verifications")
    (out / "expected.json").write_text(json.dumps(expected) + "\n")


main()
