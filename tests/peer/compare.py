"""narrowgauge beside the best torch.compile stacks on one GPU, and narrowgauge over batch, context and model sizes.

usage: compare.py run|sweep|table --results FILE [--program narrowgauge] [--seconds 420] [--commit TEXT] [--set KEY=VALUE ...]
  run    every stack in turn, three rounds (A B C A B C ...), each run in a process of its own
  sweep  narrowgauge with micro-batch 1, 2, 4 x context 1024 ... 8192, then 124M, 977M and 1.5B models in the same cap
  table  both as Markdown
A run's result is one JSON line in FILE, and a run that has one is not repeated: after --seconds call it again until it says that
nothing is left. --set adds to the settings of narrowgauge's runs, STACKS below."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CAP = "14.5"  # GiB: of all device memory for narrowgauge, of the allocator for PyTorch
ROUNDS = 3
DOES_NOT_FIT, NOT_INSTALLED = "does not fit", "not installed"

parser = argparse.ArgumentParser()
parser.add_argument("part", choices=["run", "sweep", "table"])
parser.add_argument("--results", required=True)
parser.add_argument("--program", default=os.path.join(ROOT, "build", "narrowgauge"))
parser.add_argument("--seconds", type=float, default=420)
parser.add_argument("--commit", default="")
parser.add_argument("--set", action="append", default=[], help="more settings of narrowgauge's runs")
a = parser.parse_args()
started = time.time()


def recorded():
    if not os.path.exists(a.results):
        return []
    return [json.loads(line) for line in open(a.results) if line.strip()]


def append(row):
    os.makedirs(os.path.dirname(os.path.abspath(a.results)), exist_ok=True)
    with open(a.results, "a") as file:
        file.write(json.dumps(row) + "\n")


def last_line(text):
    lines = [line for line in text.strip().split("\n") if line.strip()]
    return lines[-1] if lines else ""


def run_narrowgauge(config, settings, steps=12):
    """One `narrowgauge bench step`, as a row without its names."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "step.json")
        command = [a.program, "bench", "step", os.path.join(ROOT, config), "--speed-only", "--steps", str(steps), "--json", out]
        for setting in [f"memory.budget={CAP}GiB", "train.deterministic=false", *settings]:
            command += ["--set", setting]
        done = subprocess.run(command, capture_output=True, text=True, timeout=remaining())
        if done.returncode != 0:
            message = last_line(done.stderr)
            return {"status": DOES_NOT_FIT if "memory is not enough" in message or "nothing fits" in message else "failed", "message": message}
        result = json.load(open(out))
    step, peak = result["step"], result["step"]["peak_bytes"]
    return {"status": "ok", "tokens_per_second": step["tokens_per_second"]["median"], "step_ms": step["step_ms"],
            "allocated": peak["allocated"], "reserved": peak["reserved"], "device_bytes": peak["device"],
            "deterministic": step["deterministic"], "attention": step["attention"], "master": step["master"],
            "recompute": step["recompute"], "cuda_graphs": step["cuda_graphs"], "parameters": step["parameters"],
            "versions": f"narrowgauge {result['narrowgauge']}, torch {result['torch']}, cuDNN {result['cudnn']}, driver {result['driver']}",
            "clocks": [result["clocks_start"], result["clocks_end"]]}


def run_compiled(optimizer):
    environment = dict(os.environ)
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.path.dirname(os.path.abspath(a.results)), "inductor"))
    environment.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
    command = [sys.executable, os.path.join(HERE, "compiled.py"), "--optimizer", optimizer, "--cap", CAP]
    done = subprocess.run(command, capture_output=True, text=True, timeout=remaining(), env=environment)
    if done.returncode != 0:
        status = {3: DOES_NOT_FIT, 4: NOT_INSTALLED}.get(done.returncode, "failed")
        return {"status": status, "message": last_line(done.stderr)}
    row = json.loads(last_line(done.stdout))
    row["versions"] = f"torch {row['torch']}, cuDNN {row['cudnn']}, {row['optimizer']}"
    return {"status": "ok", **row}


def ours(*settings):
    return lambda: run_narrowgauge("configs/1b-16gb.yaml", [*settings, *a.set])


def levels(**counts):
    """memory.recompute for as many layers at each level."""
    return "memory.recompute=[" + ",".join(name for name, count in counts.items() for _ in range(count)) + "]"


STACKS = {
    "narrowgauge": ours("optim.master=stochastic", "train.micro_batch=2", "memory.recompute=elementwise"),
    "torch.compile, fused AdamW": lambda: run_compiled("fused"),
    "narrowgauge, deterministic": ours("optim.master=stochastic", "train.deterministic=true", "train.micro_batch=2",
                                       levels(ffn=6, elementwise=18)),
    "torch.compile, 8-bit AdamW": lambda: run_compiled("8bit"),
    "narrowgauge, split master": ours("optim.master=split", "train.micro_batch=1", "memory.recompute=elementwise"),
}


def remaining():
    """Seconds that a run may still take: a part stays below 8 minutes."""
    return max(5.0, a.seconds + 50 - (time.time() - started))


class OutOfTime(Exception):
    pass


longest = 45.0  # seconds of the longest run so far
failed = 0


def measured(key, run):
    """The row of `key`: from the file, or run now and appended."""
    global longest, failed
    for row in recorded():
        if row["key"] == key and row["status"] != "failed":
            return row
    if time.time() - started + longest > a.seconds:
        raise OutOfTime
    begin = time.time()
    try:
        row = run()
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    seconds = time.time() - begin
    longest = max(longest, seconds)
    row = {"key": key, "commit": a.commit, "seconds": round(seconds, 1), "time": time.strftime("%Y-%m-%d %H:%M"), **row}
    append(row)
    failed += row["status"] == "failed"
    speed = f"{row['tokens_per_second']:.0f} tokens/s" if row["status"] == "ok" else f"{row['status']}: {row['message']}"
    print(f"{key}: {speed} ({seconds:.0f} s)", flush=True)
    return row


def run_key(stack, turn):
    return f"run/{stack}/{turn}"


def run_stacks():
    for turn in range(ROUNDS):
        for stack, run in STACKS.items():
            measured(run_key(stack, turn), run)


# --- sweep ----------------------------------------------------------------------------------------------------------------


LARGE = ["model.hidden_size=2048", "model.ffn_size=5504", "model.layers=28"]  # 1.48 billion parameters
CASES = {}
for length in (1024, 2048, 4096, 8192):
    for sequences in (1, 2, 4):
        CASES[f"sweep/977M/context {length}/micro-batch {sequences}"] = (
            "configs/1b-16gb.yaml", ["optim.master=stochastic", f"data.context={length}", f"train.micro_batch={sequences}"])
CASES["sweep/124M/context 1024/micro-batch 16"] = ("configs/124m.yaml", ["optim.master=stochastic"])
CASES["sweep/977M/context 4096/micro-batch 1, split"] = ("configs/1b-16gb.yaml", ["optim.master=split", "train.micro_batch=1"])
CASES["sweep/1.5B/context 4096/micro-batch 1"] = (
    "configs/1b-16gb.yaml", ["optim.master=stochastic", "train.micro_batch=1", *LARGE])


def sweep():
    for key, (config, settings) in CASES.items():
        measured(key, lambda: run_narrowgauge(config, settings, steps=6))


# --- tables -----------------------------------------------------------------------------------------------------------------


def gib(row, name):
    return f"{row[name] / 2**30:.1f}" if name in row else "-"


def run_table():
    rows = {row["key"]: row for row in recorded()}
    medians, lines = {}, []
    for stack in STACKS:
        turns = [rows[run_key(stack, turn)] for turn in range(ROUNDS) if run_key(stack, turn) in rows]
        good = [row for row in turns if row["status"] == "ok"]
        if not good:
            lines.append((stack, None, turns[-1]["status"] if turns else "not run"))
            continue
        medians[stack] = statistics.median(row["tokens_per_second"] for row in good)
        lines.append((stack, good, ""))
    peers = [value for stack, value in medians.items() if stack.startswith("torch")]
    best = max(peers) if peers else None
    print("| stack | tokens/s, median | least, most | runs | of the best peer | reserved GiB | deterministic | master | versions, commit |")
    print("|---|---:|---:|---:|---:|---:|---|---|---|")
    for stack, good, problem in lines:
        if not good:
            print(f"| {stack} | {problem} | | | | | | | |")
            continue
        speeds, last = [row["tokens_per_second"] for row in good], good[-1]
        ratio = f"{medians[stack] / best:.3f}" if best else "-"
        commits = ", ".join(sorted({row["commit"] for row in good if row["commit"]}))
        print(f"| {stack} | {medians[stack]:.0f} | {min(speeds):.0f}, {max(speeds):.0f} | {len(good)} | {ratio} | {gib(last, 'reserved')} "
              f"| {'yes' if last['deterministic'] else 'no'} | {last['master']} | {last['versions']}{', ' + commits if commits else ''} |")


def sweep_table():
    rows = recorded()
    print("\n| model | context | micro-batch | tokens/s | recompute | reserved GiB |\n|---|---|---|---:|---|---:|")
    for key in CASES:
        row = next((row for row in rows if row["key"] == key), None)
        if row is None:
            continue
        _, model, context, batch = key.split("/")
        names = f"| {model} | {context.split()[-1]} | {batch.split(' ', 1)[1]} |"
        if row["status"] == "ok":
            print(f"{names} {row['tokens_per_second']:.0f} | {row['recompute']} | {gib(row, 'reserved')} |")
        else:
            print(f"{names} {row['status']} | | |")


if a.part == "table":
    run_table()
    sweep_table()
    sys.exit(0)
try:
    run_stacks() if a.part == "run" else sweep()
    print(f"compare {a.part}: nothing is left")
except OutOfTime:
    print(f"compare {a.part}: time is up, call it again to go on")
run_table() if a.part == "run" else sweep_table()
sys.exit(1 if failed else 0)
