#!/usr/bin/env bash
# Collects what tests/gpu/run.sh needs on a machine with a GPU but no build: tests/gpu/pack.sh FOLDER
# (the program and GPU tests of $BUILD, default build/, stripped, the SentencePiece libraries, golden models and training tokens;
# with PEERS=1 also the optimizers of the peers in tests/peer, from PyPI).
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/gpu/pack.sh FOLDER}
build=${BUILD:-build}
shared=${NARROWGAUGE_SHARED:-../shared}
rm -rf "$out"
mkdir -p "$out/tests" "$out/lib" "$out/data"
strip -o "$out/narrowgauge" "$build/narrowgauge"
for test in $(ctest --test-dir "$build" -L gpu -N | sed -n 's/.*Test *#[0-9]*: //p'); do
  strip -o "$out/tests/${test//\//_}" "$build/tests/${test//\//_}" || echo "not built: $test" >&2
done
ldd "$build/narrowgauge" | awk '/sentencepiece|protobuf/ {print $3}' | xargs -I{} cp -L {} "$out/lib/"
cp -r "$shared/golden" "$out/golden"
cp "$shared/data/tinyshakespeare.txt" "$out/data/"
"$build/narrowgauge" tokenizer train --input "$out/data/tinyshakespeare.txt" --vocab 32000 --out "$out/data/tok.model"
"$build/narrowgauge" prepare --input "$out/data/tinyshakespeare.txt" --tokenizer "$out/data/tok.model" --out "$out/data/shakespeare"
git describe --always --dirty >"$out/commit"
if [ "${PEERS:-0}" = 1 ]; then
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$out/python" bitsandbytes torchao
  # Only the code that an Nvidia card and CUDA 13 use.
  find "$out/python/bitsandbytes" -name 'libbitsandbytes_*.so' ! -name 'libbitsandbytes_cuda13*' -delete
  find "$out/python/torchao" -name '_C*.so' -delete
fi
du -sh "$out"
