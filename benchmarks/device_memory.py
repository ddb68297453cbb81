"""Device memory for programs without PyTorch: from the CUDA driver, or host memory."""

import ctypes


class CudaMemory:
    """A primary context and zeroed device memory."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.check("cuInit", 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.check("cuCtxSetCurrent", context)

    def check(self, name, *arguments):
        if getattr(self.driver, name)(*arguments) != 0:
            raise RuntimeError(f"{name} failed")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.check("cuMemsetD8_v2", pointer, 0, ctypes.c_size_t(size))
        return pointer.value

    def write(self, address, data):
        self.check("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address, size):
        data = ctypes.create_string_buffer(size)
        self.check("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw

    def synchronize(self):
        self.check("cuCtxSynchronize")


class HostMemory:
    def __init__(self):
        self.kept = []

    def allocate(self, size):
        self.kept.append(ctypes.create_string_buffer(size + 64))
        return (ctypes.addressof(self.kept[-1]) + 63) // 64 * 64

    def write(self, address, data):
        ctypes.memmove(address, data, len(data))

    def read(self, address, size):
        return ctypes.string_at(address, size)

    def synchronize(self):
        pass


def memory_of(device):
    return CudaMemory() if device == "cuda" else HostMemory()
