"""Kernels of the user's own: CUDA C++ that is compiled, tuned and launched as the library's are."""
