#!/usr/bin/env python3
"""Distils a draft head (EAGLE-3's form, or Medusa's) for a small model from the model's own answers. Minutes on one GPU.

    bench/drafts/train_head.py MODEL OUT [--kind eagle3|medusa] [--minutes 3] [--texts 4000] [--tokens 160] [--draft-vocab 8192] [--answers FILE]

MODEL: a folder or a .gguf file that transformers reads. Prompts are made of the sentences of docs/ and of the comments of src/; one
sentence of twenty is kept apart, its prompt written to OUT/prompts.txt. OUT holds what `headrace serve -m MODEL --model-draft OUT` takes. Printed: of the
texts kept apart, how often what is proposed k places ahead is the model's token, all before it right.

Needs torch, transformers, safetensors (and gguf for such files)."""
import argparse
import json
import pathlib
import random
import re
import time

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parents[2]
AHEAD = 4  # places that a row is trained for
AT_ONCE = 1024  # answers that are made together


def norm(x, weight, eps):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps).to(x.dtype) * weight


class Eagle3(nn.Module):
    """A layer that reads [norm(embedding), norm(feature)], over rows of three of the model's layers; ids of its own."""

    def __init__(self, model, ids):
        super().__init__()
        config = model.config
        self.hidden, self.eps, self.theta = config.hidden_size, config.rms_norm_eps, config.rope_parameters["rope_theta"]
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or self.hidden // self.heads
        layers = config.num_hidden_layers
        self.at = (2, layers // 2, layers - 3)
        self.embedding = model.get_input_embeddings().weight.detach().float()
        self.register_buffer("ids", ids)
        hidden, ffn = self.hidden, config.intermediate_size
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.q = nn.Linear(2 * hidden, self.heads * self.head_dim, bias=False)
        self.k = nn.Linear(2 * hidden, self.kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(2 * hidden, self.kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.gate, self.up, self.down = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False), nn.Linear(ffn, hidden, bias=False)
        self.in_norm, self.hidden_norm, self.ffn_norm, self.norm = (nn.Parameter(torch.ones(hidden)) for _ in range(4))
        self.output = nn.Linear(hidden, len(ids), bias=False)
        # What the model's own matrix says of these ids is a good beginning.
        self.output.weight.data.copy_(model.get_output_embeddings().weight.detach().float()[ids])

    def features(self, states):
        return torch.cat([states[i] for i in self.at], -1)

    def rotate(self, x):  # [B, heads, T, d]
        inv = self.theta ** (-torch.arange(0, self.head_dim, 2, device=x.device) / self.head_dim)
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * inv
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
        half = self.head_dim // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def rows(self, tokens, x):
        """Row i: token i + 1 beside the feature of token i."""
        read = torch.cat([norm(self.embedding[tokens], self.in_norm, self.eps), norm(x, self.hidden_norm, self.eps)], -1)
        batch, length = tokens.shape
        split = lambda y, heads: y.view(batch, length, heads, self.head_dim).transpose(1, 2)
        group = self.heads // self.kv_heads
        q, k = self.rotate(split(self.q(read), self.heads)), self.rotate(split(self.k(read), self.kv_heads)).repeat_interleave(group, 1)
        v = split(self.v(read), self.kv_heads).repeat_interleave(group, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, -1))
        y = norm(x, self.ffn_norm, self.eps)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def proposals(self, tokens, features):
        """Logits of what stands 1 to AHEAD places behind token i + 1, of rows i; each pass reads what the one before made."""
        x, out = self.fc(features[:, :-1]), []
        for _ in range(AHEAD):
            made = self.rows(tokens[:, 1:], x)
            out.append(self.output(norm(made, self.norm, self.eps)))
            x = torch.cat([made[:, :1], made[:, :-1]], 1)
        return [logits[:, k:] for k, logits in enumerate(out)]  # row i of pass k stands for i + 1 + k

    def files(self):
        names = dict(q="self_attn.q_proj", k="self_attn.k_proj", v="self_attn.v_proj", o="self_attn.o_proj", gate="mlp.gate_proj",
                     up="mlp.up_proj", down="mlp.down_proj")
        tensors = {f"midlayer.{name}.weight": getattr(self, key).weight for key, name in names.items()}
        tensors |= {"fc.weight": self.fc.weight, "norm.weight": self.norm, "lm_head.weight": self.output.weight,
                    "midlayer.input_layernorm.weight": self.in_norm, "midlayer.hidden_norm.weight": self.hidden_norm,
                    "midlayer.post_attention_layernorm.weight": self.ffn_norm,
                    "d2t": self.ids - torch.arange(len(self.ids), device=self.ids.device)}
        config = dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_size=self.hidden, intermediate_size=self.gate.out_features,
                      num_hidden_layers=1, num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, head_dim=self.head_dim,
                      rms_norm_eps=self.eps, rope_theta=self.theta, hidden_act="silu", vocab_size=len(self.embedding),
                      max_position_embeddings=8192, draft_vocab_size=len(self.ids))
        return "model.safetensors", tensors, config


class Medusa(nn.Module):
    """AHEAD heads on the last hidden row: head k says what stands k + 2 places behind it."""

    def __init__(self, model, ids):
        super().__init__()
        self.ids = ids
        hidden, output = model.config.hidden_size, model.get_output_embeddings().weight.detach().float()
        self.blocks = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(AHEAD))
        self.outputs = nn.ModuleList(nn.Linear(hidden, len(output), bias=False) for _ in range(AHEAD))
        for block, head in zip(self.blocks, self.outputs):
            nn.init.zeros_(block.weight), nn.init.zeros_(block.bias), head.weight.data.copy_(output)

    def features(self, states):
        return states[-1]

    def proposals(self, tokens, features):
        rows = features[:, :-1]
        return [self.outputs[k](rows + functional.silu(self.blocks[k](rows)))[:, : rows.shape[1] - k] for k in range(AHEAD)]

    def files(self):
        tensors = {f"{i}.0.linear.{part}": getattr(block, part) for i, block in enumerate(self.blocks) for part in ("weight", "bias")}
        tensors |= {f"{i}.1.weight": head.weight for i, head in enumerate(self.outputs)}
        return "medusa_lm_head.safetensors", tensors, dict(medusa_num_heads=AHEAD, medusa_num_layers=1)


def prompts(count):
    text = "\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    text += "\n".join(line.strip("/ \n") for path in sorted((ROOT / "src").rglob("*.h")) for line in path.read_text().splitlines() if line.startswith("//"))
    sentences = {" ".join(found.split()) for found in re.findall(r"[A-Z][^.|`\n]{30,160}\.", text)}
    asks = ("Explain this to a beginner: {}", "Write a short story in which someone says: {}", "What does this mean? {}", "Continue: {}",
            "Write a poem that begins so: {}", "List five questions that a reader of this would ask: {}")
    drawn = random.Random(1)
    sentences = drawn.sample(sorted(sentences), len(sentences))
    apart, rest = sentences[:max(1, min(count, len(sentences)) // 20)], sentences[max(1, min(count, len(sentences)) // 20):]
    told = [ask.format(sentence) for sentence in rest for ask in asks]
    drawn.shuffle(told)
    kept = [asks[i % len(asks)].format(sentence) for i, sentence in enumerate(apart)]
    return kept + told[:max(1, count - len(kept))], len(kept)


def answers(model, tokenizer, asked, tokens, device):
    """The model's greedy answers: [texts] of token ids, and where each answer begins."""
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    texts = []
    for first in range(0, len(asked), AT_ONCE):
        chats = [tokenizer.apply_chat_template([{"role": "user", "content": ask}], tokenize=False, add_generation_prompt=True)
                 if tokenizer.chat_template else ask for ask in asked[first:first + AT_ONCE]]
        given = tokenizer(chats, return_tensors="pt", padding=True, add_special_tokens=not tokenizer.chat_template).to(device)
        made = model.generate(**given, max_new_tokens=tokens, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        width = given.input_ids.shape[1]
        for row, mask in zip(made, given.attention_mask):
            answer = row[width:].tolist()
            if model.config.eos_token_id in answer:
                answer = answer[:answer.index(model.config.eos_token_id) + 1]
            texts.append((row[:width][mask.bool()].tolist(), answer))
    return texts


class Texts:
    """Batches of texts: ids [B, T], the features of each token, and which tokens were answered."""

    def __init__(self, model, head, texts, device):
        self.model, self.head, self.texts, self.device = model, head, texts, device

    def batch(self, chosen):
        rows = [self.texts[i] for i in chosen]
        length = max(len(p) + len(a) for p, a in rows)
        ids = torch.zeros(len(rows), length, dtype=torch.long)
        answered = torch.zeros(len(rows), length, dtype=torch.bool)
        for row, (prompt, answer) in enumerate(rows):
            ids[row, :len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            answered[row, len(prompt):len(prompt) + len(answer)] = True
        ids, answered = ids.to(self.device), answered.to(self.device)
        with torch.no_grad():  # what stands behind a text is seen by nothing before it
            states = self.model(ids, output_hidden_states=True).hidden_states
            return ids, self.head.features(states).float(), answered


def scores(head, index, ids, features, answered):
    """Of each place ahead: logits, what the head calls the model's token there (-1: none of its own), where an answer has one."""
    for k, logits in enumerate(head.proposals(ids, features)):
        wanted = index[ids[:, 2 + k:]]
        yield logits[:, : wanted.shape[1]], wanted, answered[:, 2 + k:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--kind", choices=("eagle3", "medusa"), default="eagle3")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--draft-vocab", type=int, default=8192)
    parser.add_argument("--answers", type=pathlib.Path, help="a file that keeps the answers for the next head of the same model and texts")
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = dict(pretrained_model_name_or_path=options.model)
    if options.model.suffix == ".gguf":
        where = dict(pretrained_model_name_or_path=options.model.parent, gguf_file=options.model.name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    model = model.to(device).eval()
    asked, apart = prompts(options.texts)
    start = time.time()
    if options.answers and options.answers.exists():
        texts = json.loads(options.answers.read_text())
    else:
        texts = answers(model, tokenizer, asked, options.tokens, device)
    if options.answers:
        options.answers.write_text(json.dumps(texts))
    print(f"{len(texts)} answers of {sum(len(a) for _, a in texts)} tokens in {time.time() - start:.0f} s", flush=True)
    said = torch.bincount(torch.tensor([t for _, a in texts[apart:] for t in a]), minlength=model.config.vocab_size)
    ids = said.argsort(descending=True)[:options.draft_vocab].sort().values.to(device)
    head = (Eagle3 if options.kind == "eagle3" else Medusa)(model, ids).to(device)
    if options.kind == "medusa":
        ids = torch.arange(model.config.vocab_size, device=device)
    index = torch.full((model.config.vocab_size,), -1, device=device)
    index[ids] = torch.arange(len(ids), device=device)

    optimiser = torch.optim.AdamW(head.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0)
    source, start, step = Texts(model, head, texts, device), time.time(), 0
    while (left := 1 - (time.time() - start) / (60 * options.minutes)) > 0:
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 50) * max(0.02, left)
        batch = source.batch(random.choices(range(apart, len(texts)), k=options.batch))
        loss = 0
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            for logits, wanted, answered in scores(head, index, *batch):
                wanted = wanted.masked_fill(~answered, -1)
                loss = loss + functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), ignore_index=-1)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 200 == 1:
            print(f"step {step}: loss {loss.item() / AHEAD:.3f}, {time.time() - start:.0f} s", flush=True)

    right, tried = [0] * AHEAD, [0] * AHEAD
    with torch.no_grad():
        for first in range(0, apart, options.batch):
            so_far = None
            for k, (logits, wanted, answered) in enumerate(scores(head, index, *source.batch(range(first, min(first + options.batch, apart))))):
                hit = logits.argmax(-1) == wanted
                so_far = hit if so_far is None else so_far[:, :hit.shape[1]] & hit
                right[k] += int((so_far & answered).sum())
                tried[k] += int(answered.sum())
    shares = [r / max(1, t) for r, t in zip(right, tried)]
    print(f"{step} steps; right to k places ahead: {', '.join(f'{share:.3f}' for share in shares)}; a chain of {AHEAD} brings {1 + sum(shares):.2f} tokens")
    options.out.mkdir(parents=True, exist_ok=True)
    file, tensors, config = head.files()
    save_file({name: (t if t.dtype == torch.int64 else t.to(torch.bfloat16)).detach().contiguous().cpu() for name, t in tensors.items()},
              options.out / file)
    (options.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (options.out / "prompts.txt").write_text("\n".join(asked[:apart]) + "\n")


main()
