"""The cost of disabling contraction (fused multiply-add): the templates' kernels with and without it, interleaved
on one GPU.

    python3 contraction.py --templates kernel_templates [--json FILE]

Needs nvcc, and PyTorch with CUDA. For `backward` only the pass over the activations is launched; the
second stage of its sum has no operations to contract.
"""

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import tempfile

import torch

import timing

# Operation -> macro, formula and config of its default kernel for bf16 activations and an f32 gain, columns and
# rows of a program, threads, and the operands in the registry's order (m: a matrix, g: one element per column).
_CONFIG = "(k::StreamingConfig{%s, k::CachePolicy::kDefault})"
_KERNELS = {
    "compose": ("ELEMENTWISE", "Compose", _CONFIG % "1024, 4, 1, 8, 1", 1024, 1, 128, "mmgm"),
    "compose_inner": ("ELEMENTWISE", "ComposeInner", _CONFIG % "1024, 4, 1, 8, 1", 1024, 1, 128,
                      "mmgmm"),
    "backward": ("COLUMN_SUMS", "Backward", _CONFIG % "128, 16, 256, 8, 4", 128, 256, 512,
                 "mmgmmg"),
}
_SHAPES = ((2048, 4096), (8192, 8192), (32768, 8192))
_SCALE = 0.5
_OPERANDS, _SCALARS = 8, 2


class Operand(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("row_stride", ctypes.c_longlong)]


class KernelArguments(ctypes.Structure):
    """kernel_templates/arguments.h"""
    _fields_ = [("num_rows", ctypes.c_longlong), ("num_cols", ctypes.c_longlong),
                ("num_channels", ctypes.c_longlong), ("workspace", ctypes.c_void_p),
                ("scalars", ctypes.c_double * _SCALARS), ("operands", Operand * _OPERANDS)]


class Driver:
    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        torch.zeros(1, device="cuda")  # makes PyTorch's context current

    def function(self, cubin):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"dorajit_kernel")
        return function

    def launch(self, function, grid, threads, arguments):
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._call("cuLaunchKernel", function, *grid, 1, threads, 1, 1, 0, stream, parameters, None)

    def _call(self, name, *arguments):
        if status := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} returned {status}")


def compile_cubin(templates, operation, contracted):
    template, formula, config, *_, operands = _KERNELS[operation]
    types = ", ".join("kFloat32" if operand == "g" else "kBfloat16" for operand in operands)
    header = re.sub(r"(?<!^)(?=[A-Z])", "_", formula).lower()
    source = (f'#include "cuda/{template.lower()}.cuh"\n#include "math/{header}.h"\n'
              "namespace k = dorajit::kernels;\nusing enum k::ElementType;\n"
              f"DORAJIT_{template}_KERNEL(k::{formula}, {config}, k::Broadcast::kPerColumn, {types})\n")
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.cu")
        with open(path, "w") as file:
            file.write(source)
        subprocess.run(["nvcc", "-cubin", "-std=c++20", f"-arch=sm_{major}{minor}", "-I", templates,
                        "--expt-relaxed-constexpr", f"-fmad={'true' if contracted else 'false'}",
                        "-o", path + "bin", path], check=True)
        with open(path + "bin", "rb") as file:
            return file.read()


def count_contracted(cubin):
    """The number of fused multiply-adds in the machine code, or None without a disassembler."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            text = subprocess.run(["cuobjdump", "-sass", file.name], capture_output=True, text=True,
                                  check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
    return len(re.findall(r"\bFFMA\b", text))


def operand_sets(operation, rows, cols, sets):
    def tensor(kind):
        if kind == "g":
            return 1 + 0.1 * torch.randn(cols, device="cuda")
        return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16)
    return [[tensor(kind) for kind in _KERNELS[operation][-1]] for _ in range(sets)]


def arguments_of(tensors, rows, cols, workspace):
    arguments = KernelArguments(num_rows=rows, num_cols=cols, num_channels=cols,
                                workspace=workspace.data_ptr())
    arguments.scalars[0] = _SCALE
    for operand, tensor in zip(arguments.operands, tensors):
        operand.data = tensor.data_ptr()
        operand.row_stride = cols if tensor.dim() == 2 else 0
    return arguments


def measure(driver, sampler, functions, operation, rows, cols, samples):
    *_, block, rows_per_program, threads, operands = _KERNELS[operation]
    moved = sum(rows * cols * 2 for kind in operands if kind == "m")
    how = timing.rotation(moved)
    sets = operand_sets(operation, rows, cols, how.sets)
    workspace = torch.empty(rows // 256 + 1, cols, device="cuda")
    arguments = [arguments_of(tensors, rows, cols, workspace) for tensors in sets]
    grid = (-(-cols // block), -(-rows // rows_per_program))

    def graph_of(function):
        def run(index):
            driver.launch(function, grid, threads, arguments[index])
        run(0)
        return timing.capture(run, how)
    graphs = {name: graph_of(function) for name, function in functions.items()}
    times = sampler.times(graphs, how.launches, samples)
    return {"operation": operation, "rows": rows, "cols": cols, "samples": samples,
            "median_us": {name: statistics.median(values) for name, values in times.items()},
            "quartiles_us": {name: timing.quartiles(values) for name, values in times.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", required=True, help="the folder kernel_templates")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    driver, sampler = Driver(), timing.Sampler()
    report = {"device": torch.cuda.get_device_name(), "fused_multiply_adds": {}, "results": []}
    for operation in _KERNELS:
        cubins = {name: compile_cubin(arguments.templates, operation, name == "contracted")
                  for name in ("separate", "contracted")}
        report["fused_multiply_adds"][operation] = {
            name: count_contracted(cubin) for name, cubin in cubins.items()}
        functions = {name: driver.function(cubin) for name, cubin in cubins.items()}
        for rows, cols in _SHAPES:
            result = measure(driver, sampler, functions, operation, rows, cols, arguments.samples)
            report["results"].append(result)
            times = result["median_us"]
            print(f"{operation} {rows}x{cols}: separate {times['separate']:.2f} us, contracted "
                  f"{times['contracted']:.2f} us, ratio "
                  f"{times['separate'] / times['contracted']:.4f}", flush=True)
            torch.cuda.empty_cache()
    print("FFMA instructions:", report["fused_multiply_adds"])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
