# Installs the packages that the build needs. ./dev sources this file, which uses its variables and functions.
# shellcheck shell=bash disable=SC2154

clang_packages=(clang-19 libc++-19-dev libc++abi-19-dev lld-19)
lint_packages=(clang-format-19)
# From PyPI: since version 22 it skips system headers, which takes a third of the time.
clang_tidy='clang-tidy==23.1.4'
# Needed for tests and sanitizers only.
test_packages=(googletest libclang-rt-19-dev)
base_packages=(cmake ninja-build make g++ pkg-config python3 python3-venv libcli11-dev
  nlohmann-json3-dev libxxhash-dev libdlpack-dev libsqlite3-dev libuv1-dev git ca-certificates)
# The system for which the preset aarch64 builds.
arm64_packages=(libc6 libc6-dev linux-libc-dev libcrypt1 libgcc-12-dev libgcc-s1 libc++-19-dev libc++1-19 libc++abi-19-dev
  libc++abi1-19 libunwind-19 libunwind-19-dev libsqlite3-dev libuv1-dev libxxhash-dev libdlpack-dev nlohmann-json3-dev
  libcli11-dev googletest)
# Its Python, of which wheels need the headers, and their check the interpreter.
arm64_packages+=(libpython3.11-dev python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libexpat1 libffi8
  libssl3 zlib1g)
nvrtc_13='nvidia-cuda-nvrtc==13.0.*'
nvrtc_12='nvidia-cuda-nvrtc-cu12'

missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      printf '%s\n' "$package"
  done
}

apt() {
  local runner=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || return 1
    runner=(sudo)
  fi
  "${runner[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" </dev/null >&2
}

# Installs as many of the given packages as possible; the caller checks what is missing.
install_packages() {
  local missing package
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  apt update || say "the package lists could not be updated; using the present ones"
  apt install --no-install-recommends "${missing[@]}" && return 0
  for package in "${missing[@]}"; do
    apt install --no-install-recommends "$package" || true
  done
}

# Prints the name of a g++ that is new enough, or nothing.
recent_gcc() {
  local name
  for name in g++ g++-16 g++-15 g++-14 g++-13; do
    if command -v "$name" >/dev/null && (($("$name" -dumpversion | cut -d. -f1) >= 13)); then
      printf '%s\n' "$name"
      return
    fi
  done
}

choose_compiler() {
  if command -v clang++-19 >/dev/null && [[ -f $(clang++-19 -print-file-name=libc++.a) ]]; then
    compiler=clang++-19
    return
  fi
  compiler=$(recent_gcc)
  if [[ -z $compiler ]]; then
    install_packages g++-13
    compiler=$(recent_gcc)
  fi
  [[ -n $compiler ]] || die "neither clang 19 with libc++ 19 nor GCC 13 could be installed: install one of them"
  notices+=("clang 19 with libc++ 19 is missing, so $compiler is used: its binaries need this system's
libstdc++ at run time, and ./dev bundle does not work")
}

nvrtc_in() { compgen -G "$1/libnvrtc.so.1[23]*" >/dev/null; }

# Prints the folder of an NVRTC on this machine, or nothing.
find_nvrtc() {
  local base folder
  for base in "${CUDA_PATH:-}" "${CUDA_HOME:-}" /usr/local/cuda; do
    for folder in "$base/lib64" "$base/lib"; do
      if [[ -n $base ]] && nvrtc_in "$folder"; then printf '%s\n' "$folder"; return; fi
    done
  done
  folder=$(ldconfig -p 2>/dev/null | sed -n 's/.*libnvrtc\.so\.1[23] .*=> \(.*\)\/.*/\1/p' | head -n 1)
  [[ -n $folder ]] ||
    folder=$(find "$state/venv" -name 'libnvrtc.so.1[23]' -printf '%h\n' 2>/dev/null | head -n 1)
  printf '%s\n' "$folder"
}

# fetch_from_pypi PACKAGE...: fetching may fail; the caller checks what is missing.
fetch_from_pypi() {
  [[ -x $state/venv/bin/pip ]] || python3 -m venv "$state/venv" >&2 || return 0
  "$state/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --retries 1 \
    --timeout 30 "$@" >&2 || true
}

install_nvrtc() {
  local package=$nvrtc_13
  ! nvidia-smi 2>/dev/null | grep -q 'CUDA Version: 12\.' || package=$nvrtc_12
  say "no NVRTC on this machine: fetching $package from PyPI"
  fetch_from_pypi "$package"
}

# setup_key SCOPE
setup_key() { printf '%s\n' "$1" "${clang_packages[*]} ${base_packages[*]} ${test_packages[*]}" "$nvrtc_13" \
  "$(cat /etc/os-release 2>/dev/null)" |
  sha256sum | cut -d' ' -f1; }

# run_setup SCOPE: installs everything ("whole"), or what running the program needs ("program"): no test packages,
# and NVRTC only if there is a GPU.
run_setup() {
  local missing scope=$1
  notices=()
  mkdir -p "$state"
  if command -v dpkg-query >/dev/null; then
    install_packages "${base_packages[@]}" "${clang_packages[@]}"
    [[ $scope == program ]] || install_packages "${test_packages[@]}"
    mapfile -t missing < <(missing_packages "${base_packages[@]}")
    ((${#missing[@]} == 0)) || die "these packages are needed and could not be installed: ${missing[*]}"
  else
    say "this is neither Debian nor Ubuntu: install these packages or their equivalents: ${base_packages[*]}"
  fi
  choose_compiler
  nvrtc=$(find_nvrtc)
  if [[ -z $nvrtc && -z ${DORAJIT_NVRTC:-} ]] && { [[ $scope == whole ]] || has_gpu; }; then
    install_nvrtc
    nvrtc=$(find_nvrtc)
    [[ -n $nvrtc ]] || notices+=("NVRTC is missing and PyPI did not provide it: tests that compile
CUDA kernels are skipped, and 'dorajit prewarm' does not compile for GPUs")
  fi
  notices=("${notices[@]//$'\n'/ }")
  { printf 'key=%q compiler=%q nvrtc=%q\n' "$(setup_key "$scope")" "$compiler" "$nvrtc"
    printf 'notices=('; printf '%q ' "${notices[@]}"; printf ')\n'; } >"$state/setup"
}

# setup [SCOPE]: installs missing packages, and sets: compiler, nvrtc, toolchain, DORAJIT_NVRTC.
setup() {
  local key=none notice scope=${1:-whole}
  # shellcheck source=/dev/null
  [[ ! -f $state/setup ]] || source "$state/setup"
  [[ ( $key == "$(setup_key whole)" || $key == "$(setup_key "$scope")" ) &&
    ( -z $nvrtc || -d $nvrtc ) ]] && command -v "$compiler" >/dev/null ||
    run_setup "$scope"
  for notice in "${notices[@]}"; do [[ -z $notice ]] || say "$notice"; done
  toolchain=()
  [[ $compiler == clang++-19 ]] ||
    toolchain=("-DCMAKE_CXX_COMPILER=$compiler" "-DCMAKE_C_COMPILER=${compiler/g++/gcc}")
  [[ -n ${DORAJIT_NVRTC:-} || -z $nvrtc ]] || export DORAJIT_NVRTC=$nvrtc
}

# Unpacks Debian's arm64 packages below build/.dev; nothing of this machine's is changed but that it gets QEMU.
setup_aarch64() {
  local root=$state/aarch64 work file link
  [[ $(cat "$root/complete" 2>/dev/null) != "${arm64_packages[*]}" ]] || return 0
  install_packages qemu-user lld-19 binutils-aarch64-linux-gnu
  say "fetching Debian's packages for arm64"
  work=$(mktemp -d)
  mkdir -p "$work/lists/partial"
  rm -rf "$root"
  mkdir -p "$root"
  local options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$work/lists"
    -o APT::Sandbox::User=)
  apt-get "${options[@]}" update >&2 || true
  (cd "$work" && apt-get "${options[@]}" download "${arm64_packages[@]}") >&2 ||
    die "Debian's packages for arm64 could not be fetched"
  for file in "$work"/*.deb; do dpkg -x "$file" "$root"; done
  # Absolute links would leave the folder.
  find "$root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -ms --relative-to="${link%/*}" "$root$(readlink "$link")")" "$link"
  done
  rm -rf "$work"
  printf '%s\n' "${arm64_packages[*]}" >"$root/complete"
}

# setup, and the tools of ./dev lint and ./dev format. Those commands skip checks whose tool is missing.
setup_with_lint() {
  setup
  ! command -v dpkg-query >/dev/null || install_packages "${lint_packages[@]}"
  [[ -x $state/venv/bin/clang-tidy ]] || {
    say "fetching $clang_tidy from PyPI"
    fetch_from_pypi "$clang_tidy"
  }
  command -v clang-format-19 >/dev/null || say "clang-format-19 could not be installed"
  [[ -x $state/venv/bin/clang-tidy ]] || say "clang-tidy could not be fetched from PyPI"
}

# setup, and the dependencies of the Python package. Only commands that build or test the package fetch PyTorch.
setup_with_python() {
  setup
  has_python || install_python
  has_python || say "PyTorch, pybind11 or Python's headers could not be fetched: the Python package is \
neither built nor tested"
}
