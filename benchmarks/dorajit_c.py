"""dorajit's C interface through ctypes. Needs only the standard library."""

import ctypes

CPU, CUDA = 1, 2

_FLOAT, _BFLOAT = 2, 4
_ELEMENT_TYPES = {
    "float64": (_FLOAT, 64),
    "float32": (_FLOAT, 32),
    "float16": (_FLOAT, 16),
    "bfloat16": (_BFLOAT, 16),
}


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Statistics(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int64)
        for name in ("launches", "compilations", "artifact_hits", "builtin_kernels",
                     "tuned_problems", "trials")
    ]


def raw_view(address, shape, element_type, device_type, device_id=0):
    """A DLTensor over contiguous memory, which the caller owns."""
    code, bits = _ELEMENT_TYPES[element_type]
    return DLTensor(address, DLDevice(device_type, device_id), len(shape),
                    DLDataType(code, bits, 1), (ctypes.c_int64 * len(shape))(*shape), None, 0)


def view(array):
    """A DLTensor over a contiguous PyTorch tensor or NumPy array, which must outlive it."""
    if hasattr(array, "data_ptr"):
        on_cuda = array.device.type == "cuda"
        return raw_view(array.data_ptr(), array.shape, str(array.dtype).removeprefix("torch."),
                        CUDA if on_cuda else CPU, array.device.index or 0 if on_cuda else 0)
    return raw_view(array.ctypes.data, array.shape, array.dtype.name, CPU)


class Dorajit:
    """One library and one engine, both for the life of the process.

    Tensors are DLTensors, `stream` is a raw CUDA stream (None on the CPU). What fails raises
    RuntimeError with the library's message.
    """

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        self._library.dorajit_error_message.restype = ctypes.c_char_p
        self._library.dorajit_error_destroy.restype = None
        self._engine = ctypes.c_void_p()
        self._call("engine_create", None, ctypes.byref(self._engine))

    def compose(self, stream, lora, base, gain, scale, out):
        self._run("compose", stream, lora, base, gain, ctypes.c_double(scale), out)

    def compose_inner(self, stream, lora, base, gain, scale, out, inner):
        self._run("compose_inner", stream, lora, base, gain, ctypes.c_double(scale), out, inner)

    def backward_workspace(self, d_out, gain):
        size = ctypes.c_int64()
        self._call("backward_workspace", _reference(d_out), _reference(gain), ctypes.byref(size))
        return size.value

    def backward(self, stream, d_out, inner, gain, scale, d_lora, d_base, d_gain, workspace,
                 workspace_bytes):
        """`workspace` is an address; tensors that are left out are None."""
        self._run("backward", stream, d_out, inner, gain, ctypes.c_double(scale), d_lora, d_base,
                  d_gain, ctypes.c_void_p(workspace), ctypes.c_int64(workspace_bytes))

    def norm_assembly(self, stream, w_norm_sq, cross, ba_norm_sq, scale, norm):
        self._run("norm_assembly", stream, w_norm_sq, cross, ba_norm_sq, ctypes.c_double(scale),
                  norm)

    def statistics(self):
        counts = Statistics(struct_size=ctypes.sizeof(Statistics))
        self._call("engine_statistics", self._engine, ctypes.byref(counts))
        return counts

    def _run(self, operation, stream, *arguments):
        self._call(operation, self._engine, ctypes.c_void_p(stream), *map(_reference, arguments))

    def _call(self, function, *arguments):
        error = ctypes.c_void_p()
        status = getattr(self._library, "dorajit_" + function)(*arguments, ctypes.byref(error))
        if status != 0:
            message = self._library.dorajit_error_message(error).decode()
            self._library.dorajit_error_destroy(error)
            raise RuntimeError(f"dorajit_{function}: {message}")


def _reference(argument):
    return ctypes.byref(argument) if isinstance(argument, DLTensor) else argument
