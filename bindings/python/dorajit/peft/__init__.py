"""The patch that makes PEFT's DoRA layers use dorajit; docs/layers.md."""

from dorajit.peft.patch import Patch, patch_peft

__all__ = ["Patch", "patch_peft"]
