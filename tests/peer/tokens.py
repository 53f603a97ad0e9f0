"""Token shards of narrowgauge and its split into training and validation part, for the scripts beside this file."""
import glob
import os

import numpy as np


def read_tokens(folder):
    """All .ngt shards of a folder as one array (the header is 64 bytes: lib/data/shard_format.h)."""
    parts = []
    for path in sorted(glob.glob(os.path.join(folder, "*.ngt"))):
        with open(path, "rb") as file:
            head = file.read(64)
        width = int.from_bytes(head[12:16], "little")
        parts.append(np.fromfile(path, dtype=np.uint16 if width == 2 else np.uint32, offset=64))
    return np.concatenate(parts).astype(np.int64)


def validation_begin(count, context, fraction):
    """First token of the validation part: lib/data/sampler.cpp, split_train_val."""
    windows = (count - 1) // context
    most = (count - (context + 1) - 1) // context
    return count - (min(max(int(windows * fraction + 0.5), 1), most) * context + 1)
