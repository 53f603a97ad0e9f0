#!/usr/bin/env bash
# The measurements and checks that need a GPU, in parts of under 8 minutes each:
#   tests/gpu/run.sh PACK PART...      PACK: the folder that tests/gpu/pack.sh filled; logs go to $OUT (default gpu-logs)
# parts: tests, sanitize, export, smoke, mask, flagship, peer, resume, states, bench, compare, sweep
# compare and sweep keep their results in $RESULTS (default bench/compare.jsonl) and go on where they were: repeat them until
# they say that nothing is left. $SETTINGS: settings of narrowgauge's runs in compare, one or more KEY=VALUE.
set -uo pipefail
cd "$(dirname "$0")/../.."
pack=$(readlink -f "${1:?usage: tests/gpu/run.sh PACK PART...}")
shift
out=${OUT:-gpu-logs}
mkdir -p "$out"
work=${WORK:-$(mktemp -d)}
mkdir -p "$work"
torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')
export LD_LIBRARY_PATH=$torch/lib:$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export NARROWGAUGE_GOLDEN=$pack/golden NARROWGAUGE_DATA=$pack/data NARROWGAUGE_PROGRAM=$pack/narrowgauge
narrowgauge=$pack/narrowgauge
budget=14.5GiB
failed=0

say() { printf '== %s\n' "$*"; }
check() { # NAME COMMAND...: runs it, logs it, prints one line
  local name=$1 started=$SECONDS status=0
  shift
  "$@" >"$out/$name.log" 2>&1 || status=$?
  if [ $status -eq 0 ]; then say "$name ok ($((SECONDS - started)) s)"; else
    failed=1
    say "$name FAILED with $status ($((SECONDS - started)) s)"
    grep -E 'FAILED|error|Error|ERROR|REQUIRE|CHECK|with expansion|  [^ ].* (<|>|==)|what\(\)' "$out/$name.log" | head -${LINES_SHOWN:-25}
    tail -4 "$out/$name.log"
  fi
  return $status
}

gpu_tests() { # every GPU test program but the long ones (those that match $ONLY)
  local program
  for program in "$pack"/tests/*; do
    case $(basename "$program") in *states*) continue ;; esac
    [[ $(basename "$program") =~ ${ONLY:-.} ]] || continue
    check "$(basename "$program")" timeout 240 "$program" --durations yes
  done
}

sanitized() { # TOOL PROGRAM: an error in one of our kernels is a failure
  export PYTORCH_NO_CUDA_MEMORY_CACHING=1
  local common=(timeout 300 compute-sanitizer --tool "$1" --launch-timeout 0)
  if [ "$1" != initcheck ]; then
    "${common[@]}" --error-exitcode 9 --kernel-regex kns=narrowgauge "$2" '[sanitize]'
    return
  fi
  # initcheck must see every kernel, or what LibTorch wrote would pass for uninitialised; it then also reports
  # LibTorch's own vectorised sums, which read a padding that they do not use.
  local reports=$work/initcheck_$(basename "$2")
  "${common[@]}" --show-backtrace no --print-limit 1000000 "$2" '[sanitize]' >"$reports" 2>&1 || return
  grep -c 'Uninitialized' "$reports"
  grep -A1 'Uninitialized' "$reports" | grep ' at ' | grep -oE 'at (void )?[A-Za-z_:]+' | sort | uniq -c
  tail -3 "$reports"
  ! grep -A1 'Uninitialized' "$reports" | grep -q 'narrowgauge::'
}

sanitize() { # memcheck, racecheck and initcheck over the kernel tests at odd sizes, all at once
  local tool program jobs=()
  for program in "$pack"/tests/*; do
    [[ $(basename "$program") =~ ${ONLY:-.} ]] || continue
    # (the exit status of --list-tests is the number of tests)
    grep -q '^[1-9][0-9]* .*test case' <<<"$("$program" --list-tests '[sanitize]' 2>/dev/null)" || continue
    for tool in ${TOOLS:-memcheck racecheck initcheck}; do
      check "sanitize_${tool}_$(basename "$program")" sanitized $tool "$program" &
      jobs+=($!)
    done
  done
  if [ ${#jobs[@]} -eq 0 ]; then failed=1 && say "no test has the tag [sanitize]"; fi
  local job
  for job in "${jobs[@]}"; do wait "$job" || failed=1; done
}

export_check() { # a small trained model: transformers loads our export and agrees
  local run=$work/small tokens=$pack/data/shakespeare
  check export_train "$narrowgauge" train configs/quickstart.yaml --run "$run" --set data.train="$tokens" --set train.steps=60 \
    --set model.vocab_size=32000 --set train.dtype=fp32 --set train.eval_every=0 --set model.kv_heads=2 --set data.val_fraction=0.05 --set data.context=256
  check export "$narrowgauge" export "$run" --out "$work/small-export" --dtype fp32
  check export_eval bash -c "'$narrowgauge' eval '$run' --json > '$out/export_eval.json'"
  check export_transformers python3 tests/peer/check_export.py "$work/small-export" "$tokens" 256 0.05 \
    "$out/export_eval.json" 2e-5
}

common=(--set data.train="$pack/data/shakespeare" --set data.shuffle=false --set data.val_fraction=0.05 --set train.steps=100
        --set optim.warmup_steps=20 --set optim.schedule=cosine --set optim.schedule_steps=100 --set optim.min_lr=0.1 --set optim.lr=3e-4 --set memory.budget=$budget
        --set model.init=normal --set train.eval_every=0 --set log.every=10)

flagship() { # the 977M model, 100 steps on real tokens, then evaluation and samples
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv
  check flagship_start "$narrowgauge" train configs/1b-16gb.yaml --run "$work/start" "${common[@]}" --set train.steps=1 \
    --set optim.lr=1e-20 # the starting weights: a step that changes nothing
  check flagship_export "$narrowgauge" export "$work/start" --out "$work/start-export" --dtype bf16
  check flagship_train "$narrowgauge" train configs/1b-16gb.yaml --run "$work/flagship" "${common[@]}"
  cp "$work/flagship/metrics.jsonl" "$out/flagship.jsonl"
  tail -5 "$out/flagship_train.log"
  check flagship_eval "$narrowgauge" eval "$work/flagship"
  cat "$out/flagship_eval.log"
  check flagship_sample "$narrowgauge" sample "$work/flagship" --prompt "KING HENRY:" --tokens 200 --temperature 0.8 --top-k 50 \
    --top-p 0.95 --seed 1
  cat "$out/flagship_sample.log"
}

peer() { # the same run in plain PyTorch, from the same weights
  check peer_train python3 tests/peer/train.py --model "$work/start-export" --tokens "$pack/data/shakespeare" --steps 100 --warmup 20 \
    --lr 3e-4 --val-fraction 0.05 --out "$out/peer.jsonl"
  tail -2 "$out/peer_train.log"
  python3 - "$out/flagship.jsonl" "$out/peer.jsonl" <<'PY' || failed=1
import json, sys
def losses(path): return [row["loss"] for row in map(json.loads, open(path)) if row.get("event") == "step"]
ours, theirs = (losses(path) for path in sys.argv[1:3])
a, b = (sum(x[-20:]) / 20 for x in (ours, theirs))
print(f"first losses {ours[0]:.4f} {theirs[0]:.4f}; mean of the last 20: narrowgauge {a:.4f} PyTorch {b:.4f} difference {100 * (a / b - 1):+.2f} %")
sys.exit(0 if abs(a / b - 1) <= 0.02 else 1)
PY
}

smoke() { # eight steps of the 977M model: that it fits, how fast, evaluation, samples
  check smoke_train "$narrowgauge" train configs/1b-16gb.yaml --run "$work/smoke" "${common[@]}" --set train.steps=8 \
    --set optim.warmup_steps=2
  tail -12 "$out/smoke_train.log"
  check smoke_eval "$narrowgauge" eval "$work/smoke"
  check smoke_sample "$narrowgauge" sample "$work/smoke" --prompt "KING HENRY:" --tokens 200 --temperature 0.8 --top-k 50 --seed 1
  tail -3 "$out/smoke_sample.log"
}

mask() { # document masks: flash in bf16 on the card against the CPU in fp32, 10 steps of a small model
  local common=(--set data.document_mask=true --set train.steps=10 --set data.train="$work/documents")
  check mask_prepare "$narrowgauge" prepare --input lib --input cuda --tokenizer byte --out "$work/documents"
  check mask_cuda "$narrowgauge" train configs/quickstart.yaml --run "$work/mask_cuda" "${common[@]}" --set train.device=cuda \
    --set train.dtype=bf16 --set train.micro_batch=2
  check mask_cpu "$narrowgauge" train configs/quickstart.yaml --run "$work/mask_cpu" "${common[@]}" --set train.device=cpu
  python3 - "$work/mask_cuda/metrics.jsonl" "$work/mask_cpu/metrics.jsonl" <<'PY' || failed=1
import json, sys
def losses(path): return [r["loss"] for r in map(json.loads, open(path)) if r.get("event") == "step"]
cuda, cpu = (losses(path)[:10] for path in sys.argv[1:3])  # later on rounding alone parts two runs
worst = max(abs(a / b - 1) for a, b in zip(cuda, cpu))
print(f"document masks: the card's bf16 differs from the CPU's fp32 by at most {100 * worst:.3f} % over 10 steps")
sys.exit(0 if len(cuda) == len(cpu) == 10 and worst < 0.002 else 1)
PY
}

resume() { # the 977M model under train.deterministic: kill -9, resume, the same bits as an uninterrupted run
  local short=(--set train.steps=12 --set train.save_every=4 --set train.deterministic=true)
  check resume_whole "$narrowgauge" train configs/1b-16gb.yaml --run "$work/whole" "${common[@]}" "${short[@]}"
  "$narrowgauge" train configs/1b-16gb.yaml --run "$work/killed" "${common[@]}" "${short[@]}" >"$out/resume_killed.log" 2>&1 &
  local pid=$!
  until grep -q '"step":7' "$work/killed/metrics.jsonl" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.2; done
  kill -9 $pid
  wait $pid 2>/dev/null
  check resume_again "$narrowgauge" train configs/1b-16gb.yaml --run "$work/killed" "${common[@]}" "${short[@]}" --resume auto
  cp "$work/whole/metrics.jsonl" "$out/resume_whole.jsonl"
  cp "$work/killed/metrics.jsonl" "$out/resume_killed.jsonl"
  python3 - "$out/resume_whole.jsonl" "$out/resume_killed.jsonl" <<'PY' || failed=1
import json, sys
def steps(path): return {r["step"]: (r["loss"], r["grad_norm"]) for r in map(json.loads, open(path)) if r.get("event") == "step"}
whole, killed = (steps(path) for path in sys.argv[1:3])
same = whole == killed and len(whole) == 12
print("resume after kill -9:", "bitwise equal losses and norms over 12 steps" if same else f"DIFFERENT {whole} {killed}")
sys.exit(0 if same else 1)
PY
  local a b
  a=$(sha256sum <"$work/whole/checkpoints/step-00000012/weights.safetensors")
  b=$(sha256sum <"$work/killed/checkpoints/step-00000012/weights.safetensors")
  if [ "$a" = "$b" ]; then say "final weights are equal to the bit"; else failed=1; say "final weights DIFFER"; fi
}

states() { # 8-bit AdamW against fp32 AdamW, 3 seeds x 1000 steps
  local program
  for program in "$pack"/tests/*states*; do check "$(basename "$program")" timeout 500 "$program" --durations yes; done
}

commit=$(cat "$pack/commit" 2>/dev/null || true)
results=${RESULTS:-bench/compare.jsonl}

bench() { # kernels, products, attention and the step, not deterministic and deterministic
  mkdir -p "$out/bench"
  local what name flags setting
  for what in ${BENCH:-kernels gemm attention step step-deterministic}; do
    name=$what flags=(--set memory.budget=$budget)
    if [ "${what%-deterministic}" != "$what" ]; then flags+=(--set train.deterministic=true); else flags+=(--set train.deterministic=false); fi
    if [ "${what#step}" != "$what" ]; then
      flags+=(--kernels --set optim.master=stochastic)
      for setting in ${SETTINGS:-}; do flags+=(--set "$setting"); done
    fi
    check "bench_$name" timeout 300 "$narrowgauge" bench "${what%-deterministic}" configs/1b-16gb.yaml "${flags[@]}" \
      --json "$out/bench/$name.json" --commit "$commit"
    cat "$out/bench_$name.log"
  done
}

compare() { # PART: narrowgauge beside the torch.compile stacks (run), or over batch, context and model sizes (sweep)
  local flags=() setting
  for setting in ${SETTINGS:-}; do flags+=(--set "$setting"); done
  check "compare_$1" env PYTHONPATH="$pack/python${PYTHONPATH:+:$PYTHONPATH}" python3 tests/peer/compare.py "$1" \
    --program "$narrowgauge" --results "$results" --commit "$commit" "${flags[@]}"
  cat "$out/compare_$1.log"
  cp "$results" "$out/compare.jsonl"
}

for part in "$@"; do
  case $part in
    tests) gpu_tests ;;
    export) export_check ;;
    compare) compare run ;;
    sweep) compare sweep ;;
    bench | sanitize | smoke | mask | flagship | peer | resume | states) $part ;;
    *) echo "unknown part: $part" >&2; exit 2 ;;
  esac
done
exit $failed
