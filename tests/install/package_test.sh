#!/usr/bin/env bash
# Usage: package_test.sh CMAKE BUILD SOURCE TORCH PYTHON
# Packs the build, installs each package where nothing else of Lockstep is, and uses it as a stranger would: its own test, a
# new project, built and trained on two ranks. Where namespaces are allowed, the source tree is out of sight meanwhile.
set -euo pipefail

fail() {
  echo "package_test: $*" >&2
  exit 1
}

# quiet COMMAND...: what it prints is shown only when it fails.
quiet() { "$@" >"$work/log" 2>&1 || fail "$* failed:"$'\n'"$(tail -n 40 "$work/log")"; }

# Of the building machine nothing may be left: no path of the source tree or the build, and no library folder but relative
# ones and CUDA's own.
check_no_leaks() {
  local leaks binary folder
  leaks="$(grep -rlaF -e "$build" -e "$source/" -e "$(dirname "$torch")/" "$1" || true)"
  [[ -z $leaks ]] || fail "these files name the build, the source tree or its LibTorch: $leaks"
  for binary in "$1"/bin/* "$1"/lib/liblockstep*.so*; do
    while read -r folder; do
      [[ $folder == "\$ORIGIN"* || $folder == /usr/local/cuda* ]] || fail "$binary looks for libraries in $folder"
    done < <(readelf -d "$binary" | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p' | tr ':' '\n' | grep .)
  done
}

# use NAME LAUNCHER: what a user does first.
use() {
  local prefix
  prefix="$("$2" --cmake-prefix)"
  check_no_leaks "$prefix"
  quiet "$2" test
  quiet "$2" new "$work/$1-project/first"
  quiet "$cmake" -S "$work/$1-project/first" -B "$work/$1-project/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
  quiet "$cmake" --build "$work/$1-project/build"
  quiet "$2" run --nproc-per-node 2 "$work/$1-project/build/first" --max-steps 5 --disable-tqdm \
    --output-dir "$work/$1-project/out"
  [[ -f $work/$1-project/out/model.safetensors ]] || fail "the project built on the $1 saved no model"
  echo "$1: installed, tested, and trained with"
}

try_tarball() {
  mkdir "$work/tarball"
  tar -xzf "$work"/packages/lockstep-*.tar.gz -C "$work/tarball" --strip-components 1
  ln -s "$torch" "$work/tarball/libtorch"
  use tarball "$work/tarball/bin/lockstep"
}

# Unpacked, for dpkg would install it for the whole machine.
try_deb() {
  dpkg-deb -x "$work"/packages/lockstep_*.deb "$work/deb"
  ln -s "$torch" "$work/deb/opt/lockstep/libtorch"
  check_no_leaks "$work/deb/opt/lockstep"
  quiet "$work/deb/opt/lockstep/bin/lockstep" test
  echo "Debian package: unpacked and tested"
}

try_wheel() {
  use wheel "$work/environment/bin/lockstep"
  # The programs are commands of the environment too.
  PATH="$work/environment/bin:$PATH" quiet lockstep run --nproc-per-node 2 image_classification --help
}

prepare() {
  local site folder
  quiet env PYTHON="$python" "$source/scripts/make_packages" "$build" "$work/packages"
  quiet "$python" -m venv --without-pip "$work/environment"
  site="$(echo "$work"/environment/lib/python3*/site-packages)"
  for folder in "$torch" "$(dirname "$torch")/nvidia"; do
    if [[ -d $folder ]]; then ln -s "$folder" "$site/"; fi
  done
  quiet "$python" -m pip --python "$work/environment/bin/python" install --no-deps --no-index "$work"/packages/*.whl
}

# Empty folders over those of the source tree and the build, but for the one that holds LibTorch.
hide_source() {
  local folder
  cd "$work"
  for folder in "$build" "$source"/*/; do
    if ! mount -t tmpfs none "$folder" 2>/dev/null; then
      echo "the source tree stays in sight: no right to mount"
      return 0
    fi
  done
}

if [[ ${PACKAGE_TEST_INSIDE:-} != yes ]]; then
  export PACKAGE_TEST_INSIDE=yes
  for rights in "-m" "-rm"; do
    if unshare $rights true 2>/dev/null; then exec unshare $rights "$BASH" "${BASH_SOURCE[0]}" "$@"; fi
  done
fi
readonly cmake="$1" build="$2" source="$3" torch="$4" python="$5"
work="$(mktemp -d "${TMPDIR:-/tmp}/lockstep-packages.XXXXXX")"
readonly work
trap 'rm -rf "$work"' EXIT
unset CMAKE_PREFIX_PATH CMAKE_CXX_COMPILER_LAUNCHER Torch_DIR LD_LIBRARY_PATH PYTHONPATH
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
prepare
hide_source
try_tarball
try_deb
try_wheel
