# What ./dev does for the Python package: sourced by it, with its variables and functions.
# shellcheck shell=bash disable=SC2154

python_packages=(numpy pytest pybind11 scikit-build-core expecttest hypothesis)
# For the tests of the layers, which are skipped without them.
peft_packages=(peft==0.21.2 transformers==5.23.0)
# For those of the quantized base layers, each skipped without its package; HQQ needs termcolor.
quantized_packages=(bitsandbytes==0.50.2 torchao==0.18.0 hqq==0.2.8.post1 termcolor)
torch_package=torch==2.13.0
torch_cpu_index=https://download.pytorch.org/whl/cpu
python=$state/python/bin/python

pip_install() {
  "$python" -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 15 "$@" >&2
}

# An environment with PyTorch (the small build where there is no GPU) and what builds and tests the
# package; what then is missing is for the caller to judge.
install_python() {
  install_packages python3-dev
  say "fetching $torch_package ${python_packages[*]}"
  [[ -x $python ]] || python3 -m venv "$state/python" >&2 || return 0
  has_gpu || pip_install --index-url "$torch_cpu_index" "$torch_package" || true
  pip_install "$torch_package" "${python_packages[@]}" || true
  pip_install "$torch_package" "${peft_packages[@]}" ||
    say "PEFT could not be fetched: its tests are skipped"
  pip_install --no-deps "${quantized_packages[@]}" ||
    say "${quantized_packages[*]} could not be fetched: tests of quantized layers are skipped"
}

has_python() {
  [[ -x $python ]] && "$python" - 2>/dev/null <<'CODE'
import importlib.util, os, sys, sysconfig
found = all(map(importlib.util.find_spec, ("torch", "pytest", "pybind11", "numpy")))
sys.exit(not (found and os.path.exists(sysconfig.get_path("include") + "/Python.h")))
CODE
}

lint_python() {
  has_python || return 0
  # shellcheck disable=SC2046
  tidy release $(cd "$root" && git ls-files 'bindings/python/*.cc')
}

# test_python [--peft VERSION] [--upstream] [ARGUMENT...]: tests/python against the package in the release
# build tree, or PEFT's own DoRA tests; with another version of PEFT than the environment's. Arguments are
# pytest's.
test_python() {
  local tree=$root/build/release/bindings other='' tests=("$python" -m pytest -q -p no:cacheprovider)
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
  (cd "$root" && PYTHONPATH=${other:+$other:}$tree/python PATH=$tree/cli:$PATH \
    DORAJIT_UPSTREAM=$state/upstream "${tests[@]}" "$@")
}

# build_wheels DIR [PYTHON...]: a wheel for each of the interpreters, and the source distribution.
build_wheels() {
  local out=$1 interpreter
  shift
  pip_install build && "$python" -m build --sdist --outdir "$out" "$root" >&2
  for interpreter in "${@:-$python}"; do
    CXX=$compiler "$interpreter" -m pip wheel --quiet --disable-pip-version-check --no-deps \
      --wheel-dir "$out" "$root" >&2
  done
}
