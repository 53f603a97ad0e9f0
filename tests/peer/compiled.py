"""Training steps of the same model under torch.compile, to compare speed with narrowgauge's: bf16 weights, no checkpointing,
cuDNN attention, fused AdamW or 8-bit AdamW, random tokens, the allocator capped. Prints one JSON object as its last line.

usage: compiled.py --optimizer fused|8bit [--cap 14.5] [--steps 8] [--micro-batch 1] [--context 4096] [--layers 24 ...]
8bit is bitsandbytes' AdamW8bit when it can be imported, else torchao's; exit code 4 when neither is there, 3 when memory runs out."""
import argparse
import json
import statistics
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", choices=["fused", "8bit"], required=True)
parser.add_argument("--cap", type=float, default=14.5, help="GiB of the allocator")
parser.add_argument("--warmup", type=int, default=3)
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--micro-batch", type=int, default=1)
parser.add_argument("--context", type=int, default=4096)
parser.add_argument("--tokens-per-step", type=int, default=65536)
parser.add_argument("--vocab", type=int, default=32000)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--hidden", type=int, default=1792)
parser.add_argument("--heads", type=int, default=16)
parser.add_argument("--ffn", type=int, default=4736)
a = parser.parse_args()
T, D = a.context, a.hidden // a.heads


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.attention_norm = nn.Parameter(torch.ones(a.hidden))
        self.ffn_norm = nn.Parameter(torch.ones(a.hidden))
        self.q, self.k, self.v, self.out = (linear(a.hidden, a.hidden) for _ in range(4))
        self.gate, self.up, self.down = linear(a.hidden, a.ffn), linear(a.hidden, a.ffn), linear(a.ffn, a.hidden)

    def forward(self, x, cos, sin):
        batch = x.shape[0]
        h = F.rms_norm(x, (a.hidden,), self.attention_norm, 1e-5)
        q, k, v = (f(h).view(batch, T, a.heads, D).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, T, a.hidden))
        h = F.rms_norm(x, (a.hidden,), self.ffn_norm, 1e-5)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.hidden)  # also the output projection
        self.layers = nn.ModuleList(Layer() for _ in range(a.layers))
        self.norm = nn.Parameter(torch.ones(a.hidden))
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, tokens, targets, cos, sin):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        x = F.rms_norm(x, (a.hidden,), self.norm, 1e-5)
        logits = F.linear(x, self.embedding.weight).float()
        return F.cross_entropy(logits.view(-1, a.vocab), targets.reshape(-1))


def make_optimizer(parameters):
    """The optimizer and its name with version."""
    if a.optimizer == "fused":
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True), "torch fused AdamW (bf16 states)"
    try:
        import bitsandbytes
        return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-4), f"bitsandbytes {bitsandbytes.__version__} AdamW8bit"
    except Exception as problem:  # missing, or its library does not load
        print(f"bitsandbytes cannot be used: {problem}", file=sys.stderr)
    try:
        import torchao
        from torchao.optim import AdamW8bit
        return AdamW8bit(parameters, lr=1e-4), f"torchao {torchao.__version__} AdamW8bit"
    except Exception as problem:
        print(f"torchao cannot be used: {problem}", file=sys.stderr)
        sys.exit(4)


def main():
    torch.manual_seed(0)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, a.cap * 2**30 / total))
    others = total - torch.cuda.mem_get_info()[0]  # other processes and this one's context
    with torch.device("cuda"):
        model = Model().bfloat16()
        angle = torch.outer(torch.arange(T).float(), 1.0 / 10000 ** (torch.arange(0, D, 2).float() / D))
        angle = torch.cat((angle, angle), -1)
        cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
        pieces = a.tokens_per_step // (a.micro_batch * T)
        batches = torch.randint(0, a.vocab, (pieces, a.micro_batch, T + 1))
    optimizer, optimizer_name = make_optimizer(list(model.parameters()))
    compiled = torch.compile(model)

    def step():
        for batch in batches:
            loss = compiled(batch[:, :-1], batch[:, 1:], cos, sin) / pieces
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(a.warmup):
        step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(a.steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) for begin, end in zip(marks, marks[1:])]
    device = total - torch.cuda.mem_get_info()[0] - others
    print(json.dumps({
        "tokens_per_second": a.tokens_per_step / statistics.median(times) * 1e3, "step_ms": statistics.median(times),
        "optimizer": optimizer_name, "parameters": sum(p.numel() for p in model.parameters()),
        "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "device_beyond_context": device,
        "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(0),
        "deterministic": False, "attention": "cuDNN", "master": "none"}))


try:
    main()
except torch.OutOfMemoryError as problem:
    print(str(problem).split("\n")[0], file=sys.stderr)
    sys.exit(3)
