"""RWKV-7 as its paper has it (Peng et al., 2025), in plain PyTorch: transformers has no such class. Parameters are called
as flash-linear-attention calls them, whose folders are read; official_logits() gives what the author's own package (`pip
install rwkv`) computes with the same weights, which make_tiny_models.py holds this against."""
import json
import os
import pathlib
import tempfile
import types

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

LOW_RANKS = {"w": "decay_low_rank_dim", "a": "a_low_rank_dim", "v": "v_low_rank_dim", "g": "gate_low_rank_dim"}


class RWKV7Config(types.SimpleNamespace):
    model_type = "rwkv7"

    def __init__(self, **values):
        super().__init__(**{**dict(hidden_act="sqrelu", norm_first=True, norm_bias=True, norm_eps=1e-5, attn=None,
                                   num_heads=None, max_position_embeddings=2048, tie_word_embeddings=False), **values})


class LowRank(nn.Module):
    def __init__(self, width, rank, between, bias=True):
        super().__init__()
        self.lora = nn.Sequential(nn.Linear(width, rank, bias=False), between, nn.Linear(rank, width, bias=bias))

    def forward(self, x):
        return self.lora(x)


def mixed(x, mix):
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    return x + (before - x) * mix


class TimeMix(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        width = config.hidden_size
        self.dim, self.heads, self.index = config.head_dim, width // config.head_dim, index
        for name in "rwkvag":
            self.register_parameter(f"x_{name}", nn.Parameter(torch.zeros(1, 1, width)))
        self.k_k, self.k_a = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.r_k = nn.Parameter(torch.zeros(self.heads, self.dim))
        for name in ("r_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(width, width, bias=False))
        for name, rank in LOW_RANKS.items():
            between = {"w": nn.Tanh(), "g": nn.Sigmoid()}.get(name, nn.Identity())
            if name != "v" or index > 0:
                self.add_module(f"{name}_lora", LowRank(width, getattr(config, rank), between, bias=name != "g"))
        self.g_norm = nn.GroupNorm(self.heads, width, eps=self.dim * config.norm_eps)

    def forward(self, x, v_first):
        xr, xw, xk, xv, xa, xg = (mixed(x, getattr(self, f"x_{name}")[0]) for name in "rwkvag")
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        w = torch.exp(-torch.exp(torch.tensor(-0.5)) * torch.sigmoid(self.w_lora(xw)))
        a, g = torch.sigmoid(self.a_lora(xa)), self.g_lora(xg)
        if self.index == 0:
            v_first = v
        else:
            v = v + (v_first - v) * torch.sigmoid(self.v_lora(xv))
        by_head = lambda rows: rows.reshape(len(x), self.heads, self.dim)
        kk = F.normalize(by_head(k * self.k_k), dim=-1)
        k = k * (1 + (a - 1) * self.k_a)
        r, w, k, v, a = map(by_head, (r, w, k, v, a))
        state, rows = torch.zeros(self.heads, self.dim, self.dim), []
        for t in range(len(x)):
            removed = (state @ -kk[t][:, :, None]) @ (kk[t] * a[t])[:, None, :]
            state = state * w[t][:, None, :] + removed + v[t][:, :, None] @ k[t][:, None, :]
            rows.append((state @ r[t][:, :, None]).reshape(-1))
        out = self.g_norm(torch.stack(rows))
        bonus = (r * k * self.r_k).sum(dim=-1, keepdim=True) * v
        return self.o_proj((out + bonus.reshape(len(x), -1)) * g), v_first


class ChannelMix(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.x_k = nn.Parameter(torch.zeros(config.hidden_size))
        self.key = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.value = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.value(torch.relu(self.key(mixed(x, self.x_k))) ** 2)


class Block(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        norm = lambda: nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        if index == 0:
            self.pre_norm = norm()
        self.attn_norm, self.attn = norm(), TimeMix(config, index)
        self.ffn_norm, self.ffn = norm(), ChannelMix(config)

    def forward(self, x, v_first, hidden):
        if hasattr(self, "pre_norm"):
            x = self.pre_norm(x)
        mixed_rows, v_first = self.attn(self.attn_norm(x), v_first)
        hidden.append(x + mixed_rows)  # after each half: a layer of a file is two of ours
        hidden.append(hidden[-1] + self.ffn(self.ffn_norm(hidden[-1])))
        return hidden[-1], v_first


class RWKV7Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, index) for index in range(config.num_hidden_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)


class RWKV7ForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = RWKV7Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens, hidden=None):
        """tokens [T]; appends to `hidden` the rows [T, D] after each half of a layer."""
        hidden = [] if hidden is None else hidden
        x, v_first = self.model.embeddings(tokens), None
        for layer in self.model.layers:
            x, v_first = layer(x, v_first, hidden)
        return self.lm_head(self.model.norm(x))

    def save_pretrained(self, folder):
        config = {"architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", **vars(self.config)}
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        save_file({name: value.contiguous() for name, value in self.state_dict().items()},
                  pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})


def official_names(state):
    """As the author's files have them: matrices of low rank turned, a dummy gate of the first layer left out."""
    named = {}
    for name, value in state.items():
        outer = {"model.embeddings.weight": "emb.weight", "lm_head.weight": "head.weight", "model.norm.weight": "ln_out.weight",
                 "model.norm.bias": "ln_out.bias"}.get(name)
        if outer:
            named[outer] = value
            continue
        _, _, layer, part = name.split(".", 3)
        for ours, theirs in (("pre_norm", "ln0"), ("attn_norm", "ln1"), ("ffn_norm", "ln2"), ("attn.g_norm", "att.ln_x"),
                             ("attn.r_proj", "att.receptance"), ("attn.k_proj", "att.key"), ("attn.v_proj", "att.value"),
                             ("attn.o_proj", "att.output")):
            if part.startswith(ours):
                part = theirs + part[len(ours):]
        if "_lora" in part:
            kind = part.split(".")[1][0]
            end = {"lora.0.weight": "1", "lora.2.weight": "2", "lora.2.bias": "0"}[part.split(".", 2)[2]]
            part, value = f"att.{kind}{end}", value if end == "0" else value.T.contiguous()
        named[f"blocks.{layer}.{part.replace('attn.', 'att.')}"] = value
    return named


def official_logits(model, tokens):
    """Of `pip install rwkv`, on the CPU in fp32; its heads' eps is that of heads of 64. None where it is not installed."""
    os.environ.update(RWKV_V7_ON="1", RWKV_JIT_ON="0")
    try:
        from rwkv.model import RWKV
    except ImportError:
        return None
    assert abs(model.config.head_dim * model.config.norm_eps - 64e-5) < 1e-9 and model.config.norm_eps == 1e-5
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        torch.save(official_names(model.state_dict()), path + ".pth")
        with torch.no_grad():
            return RWKV(model=path, strategy="cpu fp32").forward(tokens.tolist(), None, full_output=True)[0]
