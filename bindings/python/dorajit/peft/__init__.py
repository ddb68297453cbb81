"""DoRA in PEFT models by way of dorajit; docs/layers.md."""

from dorajit.peft.patch import Patch, patch_peft

__all__ = ["Patch", "patch_peft"]
