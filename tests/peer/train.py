"""The same training run in plain PyTorch, to compare losses with narrowgauge's: the same tokens in the same order, the same
schedule, the same starting weights, AdamW in fp32 with bf16 autocast and full gradient checkpointing.

usage: train.py --model DIR --tokens FOLDER --context 4096 --tokens-per-step 65536 --steps 100 --lr 3e-4 --warmup 20
                --val-fraction 0.05 --out losses.jsonl
--model is a Hugging Face folder (narrowgauge export): its sizes and weights are the starting point. The order is narrowgauge's with data.shuffle=false: windows of
context + 1 tokens that start every `context` tokens, from the first one, again and again."""
import argparse
import json
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.utils.checkpoint import checkpoint

from tokens import read_tokens, validation_begin

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--tokens", required=True)
parser.add_argument("--context", type=int, default=4096)
parser.add_argument("--tokens-per-step", type=int, default=65536)
parser.add_argument("--micro-batch", type=int, default=4)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--lr", type=float, default=3e-4)
parser.add_argument("--min-lr", type=float, default=0.1)
parser.add_argument("--warmup", type=int, default=20)
parser.add_argument("--weight-decay", type=float, default=0.1)
parser.add_argument("--val-fraction", type=float, default=0.0)
parser.add_argument("--out", required=True)
a = parser.parse_args()


cfg = json.load(open(os.path.join(a.model, "config.json")))
H, L, NH = cfg["hidden_size"], cfg["num_hidden_layers"], cfg["num_attention_heads"]
KV, D = cfg["num_key_value_heads"], cfg["head_dim"]
V, FF, EPS, THETA, T = cfg["vocab_size"], cfg["intermediate_size"], cfg["rms_norm_eps"], cfg["rope_theta"], a.context


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), EPS)


def rotate(x):
    x1, x2 = x.chunk(2, -1)
    return torch.cat((-x2, x1), -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(H, NH * D, bias=False)
        self.k_proj = nn.Linear(H, KV * D, bias=False)
        self.v_proj = nn.Linear(H, KV * D, bias=False)
        self.o_proj = nn.Linear(NH * D, H, bias=False)

    def forward(self, h, cos, sin):
        batch = h.shape[0]
        q = self.q_proj(h).view(batch, T, NH, D).transpose(1, 2)
        k = self.k_proj(h).view(batch, T, KV, D).transpose(1, 2)
        v = self.v_proj(h).view(batch, T, KV, D).transpose(1, 2)
        q = (q.float() * cos + rotate(q.float()) * sin).to(v.dtype)
        k = (k.float() * cos + rotate(k.float()) * sin).to(v.dtype)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=KV != NH)
        return self.o_proj(o.transpose(1, 2).reshape(batch, T, NH * D))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(H, FF, bias=False)
        self.up_proj = nn.Linear(H, FF, bias=False)
        self.down_proj = nn.Linear(FF, H, bias=False)

    def forward(self, h):
        return self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(H), Norm(H)
        self.self_attn, self.mlp = Attention(), FeedForward()

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(V, H)
        self.layers = nn.ModuleList(Block() for _ in range(L))
        self.norm = Norm(H)
        freq = 1.0 / THETA ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
        angle = torch.outer(torch.arange(T, dtype=torch.float64), freq)
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, tokens, targets, head):
        x = self.embed_tokens(tokens).to(torch.bfloat16)
        for block in self.layers:
            x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
        x = self.norm(x)
        total = 0.0
        for row in range(x.shape[0]):  # a sequence at a time: full fp32 logits would not fit
            total = total + checkpoint(
                lambda h, t: F.cross_entropy(F.linear(h, head.to(h.dtype)).float(), t, reduction="sum"),
                x[row], targets[row], use_reentrant=False)
        return total


torch.manual_seed(0)
model = Model()
state = {}
for name in sorted(os.listdir(a.model)):
    if name.endswith(".safetensors"):
        state.update(load_file(os.path.join(a.model, name)))
head_state = state.pop("lm_head.weight", None)
model.load_state_dict({k.removeprefix("model."): v.float() for k, v in state.items()})
model.cuda()
tied = cfg["tie_word_embeddings"]
head = model.embed_tokens.weight if tied else nn.Parameter(head_state.float().cuda())
norms = [p for p in model.parameters() if p.dim() < 2]
matrices = [p for p in model.parameters() if p.dim() >= 2] + ([] if tied else [head])
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": a.weight_decay}, {"params": norms, "weight_decay": 0.0}],
                              lr=a.lr, betas=(0.9, 0.95), eps=1e-8, fused=True)
tokens = torch.from_numpy(read_tokens(a.tokens))
if a.val_fraction:
    tokens = tokens[:validation_begin(len(tokens), T, a.val_fraction)]
windows = (len(tokens) - 1) // T
per_step = a.tokens_per_step // T


def rate(step):
    if step < a.warmup:
        return a.lr * (step + 1) / a.warmup
    t = (step - a.warmup) / max(1, a.steps - a.warmup)
    return a.lr * (a.min_lr + (1 - a.min_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, t))))


out = open(a.out, "w")
start = time.time()
for step in range(a.steps):
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    loss_sum = 0.0
    for first in range(0, per_step, a.micro_batch):
        index = [(step * per_step + first + j) % windows for j in range(a.micro_batch)]
        batch = torch.stack([tokens[i * T:i * T + T + 1] for i in index]).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch[:, :-1], batch[:, 1:], head) / a.tokens_per_step
        loss.backward()
        loss_sum += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(matrices + norms, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    out.write(json.dumps({"event": "step", "step": step + 1, "loss": float(loss_sum), "grad_norm": float(norm)}) + "\n")
    out.flush()
    if step % 10 == 9:
        print(f"step {step + 1} loss {float(loss_sum):.4f} {(step + 1) * a.tokens_per_step / (time.time() - start):.0f} tokens/s",
              flush=True)
