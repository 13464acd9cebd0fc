#!/usr/bin/env bash
# Usage: install_test.sh CMAKE BUILD SOURCE LIBDIR LAUNCHER CXXFLAGS
# LAUNCHER is the launcher's path in the prefix, empty where this build has none.
set -euo pipefail
readonly cmake="$1" build="$2" source="$3" libdir="$4" launcher="$5" flags="$6"

fail() {
  echo "install_test: $*" >&2
  exit 1
}

work="$(mktemp -d "$build/install-test.XXXXXX")"
trap 'rm -rf "$work"' EXIT
readonly work prefix="$work/moved"

# The build found its LibTorch by these; the package has to find it by itself.
unset CMAKE_PREFIX_PATH Torch_DIR LD_LIBRARY_PATH
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE

install_and_move() {
  "$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log" || fail "$(cat "$work/install.log")"
  mv "$work/prefix" "$prefix"
}

# Nothing that was installed may point back into the build or at our headers in the source tree.
check_no_leaks() {
  local leaks
  leaks="$(grep -rlE "$build|$source/(include|src)|$work/prefix" "$prefix/$libdir/cmake" || true)"
  [[ -z $leaks ]] || fail "these files of the package name the build or source tree: $leaks"
  leaks="$(grep -rlE 'lockstep_flags|lockstep_pch|lockstep_core' "$prefix/$libdir/cmake" || true)"
  [[ -z $leaks ]] || fail "these files of the package name targets of the build: $leaks"
}

build_example() {
  cp -r "$source/examples/custom_trainer" "$work/example"
  "$cmake" -S "$work/example" -B "$work/example/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_CXX_FLAGS="$flags" >"$work/configure.log" 2>&1 || fail "$(cat "$work/configure.log")"
  "$cmake" --build "$work/example/build" >"$work/build.log" 2>&1 || fail "$(cat "$work/build.log")"
}

# The library that the program loads has to be the installed one, found without help.
check_loaded_library() {
  local loaded
  loaded="$(ldd "$work/example/build/custom_trainer")"
  grep -qF "$prefix/$libdir/liblockstep.so" <<<"$loaded" || fail "the installed library is not the one loaded: $loaded"
  if grep 'not found' <<<"$loaded"; then fail "the libraries above were not found"; fi
}

# The loader finds all the libraries of every installed program and library.
check_programs() {
  local program
  for program in "$prefix"/bin/* "$prefix/$libdir"/*.so; do
    [[ -f $program ]] || continue
    if ldd "$program" | grep 'not found'; then fail "$program: the libraries above were not found"; fi
  done
}

check_alone() {
  local out
  out="$("$work/example/build/custom_trainer" </dev/null)" || fail "the example failed: $out"
  grep -qF "rank 0 of 1" <<<"$out" || fail "the example alone printed: $out"
}

check_launched() {
  local out rank
  out="$("$prefix/$launcher" run --nproc-per-node 2 "$work/example/build/custom_trainer" </dev/null)" ||
    fail "the launched example failed: $out"
  for rank in 0 1; do
    grep -qF "rank $rank of 2" <<<"$out" || fail "rank $rank is missing in what the launched example printed: $out"
  done
}

install_and_move
check_no_leaks
build_example
check_loaded_library
check_programs
check_alone
if [[ -n $launcher ]]; then check_launched; fi
