"""The plug-in of axolotl, which finds it by its entry point: runs with `peft_use_dora` use dorajit."""

import dorajit_autopatch
from axolotl.integrations.base import BasePlugin

# Axolotl's own functions, which call no layer of PEFT; axolotl enables those that are not set.
_KERNELS = "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"


class Plugin(BasePlugin):
    """Switches axolotl's kernels off, unless the config asks for one, and patches PEFT. DORAJIT_PATCH_PEFT has the
    arguments; 0 keeps dorajit out of axolotl's runs."""

    def register(self, cfg):
        if cfg.get("peft_use_dora") and dorajit_autopatch.is_wanted() and not any(cfg.get(one) for one in _KERNELS):
            cfg.update(dict.fromkeys(_KERNELS, False))

    def pre_lora_load(self, cfg, model):
        if cfg.get("peft_use_dora"):
            dorajit_autopatch.patch()
