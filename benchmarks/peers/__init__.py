"""The kernels that dorajit is measured against, in Triton, written from their specification.

compose, backward_sum and norm_assembly follow arXiv:2603.22276, appendix C, with the default tuning
lists of its module's API reference. backward_two_stage is a faster implementation of the backward
pass in Triton. All take outputs and workspaces from the caller, so that a measurement includes only
kernels.
"""
