#!/usr/bin/env bash
# Usage: gpu_check_test.sh BUILD SOURCE PYTHON: packs the kit, moves it, and runs what this machine can run of it.
set -euo pipefail
work="$(mktemp -d "$1/gpu-check-test.XXXXXX")"
trap 'rm -rf "$work"' EXIT
PYTHON="$3" "$2/scripts/make_gpu_check" "$1" "$work/packed" >/dev/null
mv "$work/packed" "$work/kit"
unset LD_LIBRARY_PATH RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
"$3" "$work/kit/run" --quick --output "$work/results"
grep -q '^| gpt2, tiny, no, on the CPU beside Python | passed |' "$work/results/results.md"
