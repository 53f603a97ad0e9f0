"""transformers loads an exported folder and agrees with narrowgauge's own evaluation.

usage: check_export.py EXPORT TOKENS.ngt CONTEXT FIRST_TOKEN WINDOWS EXPECTED_LOSS TOLERANCE"""
import os
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

folder, path = sys.argv[1:3]
context, first, windows = (int(x) for x in sys.argv[3:6])
expected, tolerance = float(sys.argv[6]), float(sys.argv[7])
head = open(path, "rb").read(64)
token_bytes, count = int.from_bytes(head[12:16], "little"), int.from_bytes(head[16:24], "little")
tokens = np.fromfile(path, dtype=np.uint16 if token_bytes == 2 else np.uint32, offset=os.path.getsize(path) - count * token_bytes)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).to(device).eval()
total, counted = 0.0, 0
with torch.no_grad():
    for w in range(windows):
        at = first + w * context
        window = torch.from_numpy(tokens[at:at + context + 1].astype(np.int64)).to(device)
        logits = model(window[None, :-1]).logits[0].float()
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").double().item()
        counted += context
loss = total / counted
print(f"transformers {loss:.6f} narrowgauge {expected:.6f} difference {abs(loss - expected):.2e} tolerance {tolerance:.0e}")
sys.exit(0 if abs(loss - expected) <= tolerance else 1)
