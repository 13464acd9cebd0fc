#!/usr/bin/env bash
# Usage: completion_test.sh LAUNCHER COMPLETION: what bash offers behind `lockstep`.
set -euo pipefail
PATH="$(dirname "$1"):$PATH"
# shellcheck source=/dev/null
source "$2"

# offers "WORDS" EXPECTED...: completing the last of the words offers all that is expected.
offers() {
  local -a COMPREPLY=()
  local expected
  read -ra COMP_WORDS <<<"$1"
  if [[ $1 == *" " ]]; then COMP_WORDS+=(""); fi
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _lockstep
  shift
  for expected in "$@"; do
    printf '%s\n' "${COMPREPLY[@]}" | grep -qxF -- "$expected" ||
      { echo "completing '${COMP_WORDS[*]}' offered '${COMPREPLY[*]}', not $expected" >&2 && exit 1; }
  done
}

offers "lockstep " run stacks bench --version
offers "lockstep sl" slurm
offers "lockstep run --nproc" --nproc-per-node
offers "lockstep stage --no-v" --no-verify
offers "lockstep bench " comm
offers "lockstep bench comm --coll" --collective
offers "lockstep run --nnodes 2 --nproc" --nproc-per-node
