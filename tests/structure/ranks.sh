#!/bin/bash
# ranks.sh SOURCE_DIR: a folder includes only itself and folders of lower rank; torch stays out of the folders that
# do without it, and torch/torch.h out of everything but tests. Reads the #include lines.
set -euo pipefail
cd "$1"

declare -A rank=([cuda]=0 [lib/base]=0 [lib/config]=1 [lib/data]=1 [lib/layout]=2 [lib/plan]=3 [lib/ops]=3
  [lib/model]=4 [lib/optim]=4 [lib/io]=4 [lib/train]=5 [lib/bench]=6 [app]=7)
failed=0
refuse() {
  echo "$1"
  failed=1
}

# "file:line:path" of every #include below the given folders, quotes and brackets gone.
includes() {
  grep -rnE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' '^[[:space:]]*#[[:space:]]*include' "$@" |
    sed -E 's/^([^:]+:[0-9]+:)[^<"]*[<"]([^>"]+)[>"].*/\1\2/' || true
}
folder_of() {
  case $1 in
    lib/*/*) local rest=${1#lib/}; echo "lib/${rest%%/*}" ;;
    */*) echo "${1%%/*}" ;;
  esac
}

for folder in lib/*/; do
  folder=${folder%/}
  [[ -n ${rank[$folder]:-} ]] || refuse "$folder has no rank: add it to tests/structure/ranks.sh"
done

while IFS=: read -r file line path; do
  from=$(folder_of "$file")
  to=$(folder_of "$path")
  where="$file:$line: includes $path"
  if [[ $path == torch/torch.h ]]; then
    refuse "$where: only narrow LibTorch headers are allowed"
  elif [[ $path =~ ^(torch|ATen|c10)/ && $from =~ ^(cuda|lib/base|lib/config|lib/data|lib/layout|lib/plan)$ ]]; then
    refuse "$where: $from does without torch"
  elif [[ -n $to && -n ${rank[$to]:-} && $to != "$from" && ${rank[$to]} -ge ${rank[$from]} ]]; then
    refuse "$where: $from (rank ${rank[$from]}) may use only lower ranks, $to has rank ${rank[$to]}"
  elif [[ $to == tests || $path == ../* ]]; then
    refuse "$where: includes are written from the repository root, and tests stay out of the product"
  elif [[ $from =~ ^lib/(base|config|data)$ && $path =~ ^cuda ]]; then
    refuse "$where: $from does without CUDA"
  fi
done < <(includes cuda lib app)

[[ $failed == 0 ]] && echo "every include of cuda/, lib/ and app/ points to a lower rank"
exit $failed
