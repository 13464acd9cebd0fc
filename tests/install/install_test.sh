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
readonly work prefix="$work/moved" example="$work/custom_trainer"

# The build found its LibTorch by these; the package has to find it by itself.
unset CMAKE_PREFIX_PATH Torch_DIR LD_LIBRARY_PATH
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE

install_and_move() {
  "$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log" || fail "$(cat "$work/install.log")"
  mv "$work/prefix" "$prefix"
}

# The link to LibTorch is all that names a folder of this machine, and serves the moved prefix too.
check_no_leaks() {
  local leaks
  leaks="$(grep -rlE "$build|$source/(include|src)|$work/prefix" "$prefix/$libdir/cmake" || true)"
  [[ -z $leaks ]] || fail "these files of the package name the build or source tree: $leaks"
  leaks="$(grep -rlE 'lockstep_flags|lockstep_pch|lockstep_core' "$prefix/$libdir/cmake" || true)"
  [[ -z $leaks ]] || fail "these files of the package name targets of the build: $leaks"
}

# Arrow's libraries lie beside ours, which look for them there and nowhere else.
check_arrow() {
  local loaded name
  loaded="$(ldd "$prefix/$libdir/liblockstep_datasets.so")"
  for name in libarrow libparquet; do
    grep -qE "$name\.so[.0-9]* => $prefix/$libdir/" <<<"$loaded" || fail "$name is not the installed one: $loaded"
  done
  if readelf -d "$prefix/$libdir/liblockstep_datasets.so" | grep RUNPATH | grep -q pyarrow; then
    fail "liblockstep_datasets.so names the folder of a Python package"
  fi
}

# The example, as the launcher writes it for a project of one's own.
build_example() {
  if [[ -n $launcher ]]; then
    "$prefix/$launcher" new "$example" >/dev/null || fail "lockstep new failed"
  else
    cp -r "$source/examples/custom_trainer" "$example"
  fi
  "$cmake" -S "$example" -B "$example/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_CXX_FLAGS="$flags" >"$work/configure.log" 2>&1 || fail "$(cat "$work/configure.log")"
  "$cmake" --build "$example/build" >"$work/build.log" 2>&1 || fail "$(cat "$work/build.log")"
}

# The build folder is a package as well.
check_build_folder() {
  "$cmake" -S "$example" -B "$work/from-build" -G Ninja -DCMAKE_PREFIX_PATH="$build" -DCMAKE_CXX_FLAGS="$flags" \
    >"$work/from-build.log" 2>&1 || fail "$(cat "$work/from-build.log")"
  grep -qF "$build/lib/liblockstep.so" "$work/from-build/build.ninja" || fail "the build folder's library is not the one linked"
}

# The library that the program loads has to be the installed one, found without help.
check_loaded_library() {
  local loaded
  loaded="$(ldd "$example/build/custom_trainer")"
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

# The project's own tests: it trains, and goes on from its checkpoint.
check_alone() {
  "$(dirname "$cmake")/ctest" --test-dir "$example/build" --output-on-failure >"$work/ctest.log" 2>&1 ||
    fail "$(cat "$work/ctest.log")"
}

# Two ranks of batches of 8 see 16 of the 1024 samples in a step: five steps are 5/64 of an epoch.
check_launched() {
  local out
  out="$(cd "$work" && "$prefix/$launcher" run --nproc-per-node 2 "$example/build/custom_trainer" \
    --max-steps 5 --disable-tqdm --output-dir launched </dev/null)" || fail "the launched example failed: $out"
  grep -qF "'epoch': 0.078125" <<<"$out" || fail "the launched example did not train on two ranks: $out"
  [[ -f $work/launched/model.safetensors ]] || fail "the launched example saved no model"
}

install_and_move
check_no_leaks
if compgen -G "$prefix/$libdir/libarrow.so.*" >/dev/null; then check_arrow; fi
build_example
check_build_folder
check_loaded_library
check_programs
check_alone
if [[ -n $launcher ]]; then check_launched; fi
