#!/bin/bash
# resources.sh LIBRARY: prints registers, shared and local memory of every sm_120 kernel in LIBRARY, and fails when
# one spills (uses local memory or a stack) or needs more static shared memory than that card has (99 KB a block).
# Exit code 77 (skipped) where cuobjdump is missing or the library has no sm_120 code.
set -euo pipefail
library=$1
limit=101376

cuobjdump=$(command -v cuobjdump || true)
for root in "${CUDA_HOME:-}" /usr/local/cuda; do
  [[ -z $cuobjdump && -x $root/bin/cuobjdump ]] && cuobjdump=$root/bin/cuobjdump
done
if [[ -z $cuobjdump ]]; then
  echo "skipped: cuobjdump was not found (PyPI: nvidia-cuda-cuobjdump)"
  exit 77
fi
usage=$("$cuobjdump" --dump-resource-usage --gpu-architecture sm_120 "$library" 2>/dev/null || true)
if ! grep -q "REG:" <<<"$usage"; then
  echo "skipped: $library has no sm_120 code"
  exit 77
fi

c++filt <<<"$usage" | awk -v limit=$limit '
  # " Function NAME:" and, on the next line, "  REG:n STACK:n SHARED:n LOCAL:n ..."
  / Function / {
    name = $0
    sub(/^ *Function /, "", name); sub(/:$/, "", name)
    sub(/^void /, "", name)
    gsub(/narrowgauge::cuda::|\(anonymous namespace\)::/, "", name)
    if (!sub(/>\(.*/, ">", name)) sub(/\(.*/, "", name)
    next
  }
  /REG:/ {
    delete n
    for (i = 1; i <= NF; ++i) if (split($i, pair, ":") == 2) n[pair[1]] = pair[2] + 0
    bad = n["LOCAL"] > 0 || n["STACK"] > 0 || n["SHARED"] > limit
    failed += bad
    if (!kernels++) printf "%-64s %9s %7s %6s %6s\n", "kernel (sm_120)", "registers", "shared", "stack", "local"
    printf "%-64s %9d %7d %6d %6d%s\n", substr(name, 1, 64), n["REG"], n["SHARED"], n["STACK"], n["LOCAL"],
           bad ? "  <- refused" : ""
  }
  END {
    printf "%d kernels, %d refused\n", kernels, failed
    exit failed > 0
  }'
