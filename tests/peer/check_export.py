"""transformers loads an exported folder and agrees with narrowgauge's own evaluation.

usage: check_export.py EXPORT TOKENS CONTEXT VAL_FRACTION EVAL.json TOLERANCE
EVAL.json is the output of `narrowgauge eval RUN --json` of a run whose validation part is split off TOKENS."""
import json
import sys

import torch
from transformers import AutoModelForCausalLM

from tokens import read_tokens, validation_begin

folder, path = sys.argv[1:3]
context, fraction, tolerance = int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[6])
expected = json.load(open(sys.argv[5]))
tokens = torch.from_numpy(read_tokens(path))
first = validation_begin(len(tokens), context, fraction)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
total, counted = 0.0, 0
with torch.no_grad():
    while counted < expected["tokens"]:
        window = tokens[first + counted:first + counted + context + 1].to(device)
        logits = model(window[None, :-1]).logits[0].float()
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").double().item()
        counted += context
loss = total / counted
print(f"transformers {loss:.6f} narrowgauge {expected['loss']:.6f} difference {abs(loss - expected['loss']):.1e}")
sys.exit(0 if abs(loss - expected["loss"]) <= tolerance else 1)
