"""Models from their configs, without weights, with the adapter and the inputs of a run: those of transformers and
diffusers, and what a function of the user's returns."""

import importlib
import json
from pathlib import Path

import torch

# Recipe -> (element type of the base, whether adapters are float32, element type of autocast, 4 bits)
RECIPES = {
    "bf16": (torch.bfloat16, False, None, False),
    "float32-adapters": (torch.bfloat16, True, None, False),
    "autocast": (torch.bfloat16, True, torch.bfloat16, False),
    "nf4": (torch.bfloat16, True, torch.bfloat16, True),
}
OWN_FUNCTION = ("build the model in a function that also returns the inputs of a call, and pass --model "
                "package.module:function")
_BLOCK, _GROUP = 64, 256  # weights of a scale, and scales of a group, of bitsandbytes


def build(source, dtype, has_4_bits=False):
    """The model of a folder with a config.json, on the device "meta". Raises OSError if there is no such file, ValueError
    if no library that is here knows the config, or if its weights are quantized otherwise than by quantize()."""
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; --model takes the folder of a model's config.json, which "
                                "`hf download NAME config.json --local-dir DIR` fetches")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} has no object; it is not the config of a model")
    if quantized := config.pop("quantization_config", None):
        is_4_bits = isinstance(quantized, dict) and quantized.get("load_in_4bit", quantized.get("_load_in_4bit"))
        if not (is_4_bits and has_4_bits):
            raise ValueError(f"{path} has a quantization_config; " + (
                "give --recipe nf4" if is_4_bits else "of quantized weights only bitsandbytes' 4 bits are recorded from a "
                "config. Load the model in a function and pass --model package.module:function"))
    with torch.device("meta"):
        if "_class_name" in config:
            import diffusers
            return _known(diffusers, config["_class_name"], path).from_config(config).to(dtype)
        import transformers
        if config.get("model_type") not in transformers.CONFIG_MAPPING:
            raise _unknown(transformers, f"model_type {config.get('model_type')}", path)
        name = (config.get("architectures") or ["AutoModel"])[0]
        kind = _known(transformers, name, path)
        make = kind.from_config if kind is transformers.AutoModel else getattr(kind, "_from_config", None)
        if make is None:
            raise _unknown(transformers, f"model {name}", path)
        try:
            known = transformers.AutoConfig.for_model(**config)
        except Exception as error:  # transformers' own checks have several types
            raise ValueError(f"{path}: {error}") from error
        return make(known, dtype=dtype)


def _known(library, name, path):
    if not hasattr(library, name):
        raise _unknown(library, f"class {name}", path)
    return getattr(library, name)


def _unknown(library, what, path):
    return ValueError(f"{path}: {library.__name__} {library.__version__} has no {what}; install a version that has, or "
                      "build the model in a function and pass --model package.module:function")


def find_function(source):
    """The function "package.module:function". Raises ImportError if there is none."""
    module, _, name = source.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None) if module else None
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ImportError(f"--model {source}: there is no module {error.name} on PYTHONPATH, and no folder of this "
                          "name") from None
    if not callable(found):
        raise ImportError(f"--model {source}: the module has no function of this name")
    return found


def made_by(source, made):
    """(model, inputs) that a function has returned. Raises ValueError if it returned something else."""
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module) or not isinstance(
            made[1], (list, tuple, dict)):
        raise ValueError(f"--model {source}: the function has to return a torch.nn.Module, and the inputs of a call as a "
                         "list, tuple or dict")
    return made


def quantize(model):
    """Puts bitsandbytes' 4-bit layers in place of linear ones, as transformers and diffusers do with BitsAndBytesConfig."""
    import bitsandbytes
    from transformers import BitsAndBytesConfig, PreTrainedModel
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                bnb_4bit_compute_dtype=torch.bfloat16)
    kept = [*get_keys_to_not_convert(model), *model._keep_in_fp32_modules] if isinstance(model, PreTrainedModel) else []
    replace_with_bnb_linear(model, kept, config)
    for layer in model.modules():
        if isinstance(layer, bitsandbytes.nn.Linear4bit):
            weight = layer.weight
            scales = -(-weight.numel() // _BLOCK)

            def scaled(count, of, entries, block, **more):
                return bitsandbytes.functional.QuantState(
                    absmax=torch.empty(count, dtype=of, device="meta"), blocksize=block,
                    code=torch.empty(entries, device="meta"), **more)

            groups = scaled(-(-scales // _GROUP), torch.float32, 256, _GROUP, dtype=torch.float32)
            state = scaled(scales, torch.uint8, 16, _BLOCK, shape=weight.shape, quant_type="nf4", dtype=torch.bfloat16,
                           offset=torch.empty((), device="meta"), state2=groups)
            packed = torch.empty((weight.numel() + 1) // 2, 1, dtype=torch.uint8, device="meta")
            layer.weight = bitsandbytes.nn.Params4bit(packed, requires_grad=False, quant_state=state, quant_type="nf4",
                                                      bnb_quantized=True)
            layer.compute_type_is_set = True
            layer.support_avx512bf16_for_cpu = False  # it would change the layout of the weight
    model.is_loaded_in_4bit = True
    return model


def adapt(model, float32, adapter=None, **settings):
    """The model with a DoRA adapter by PEFT: that of a folder, or of a LoraConfig's settings."""
    from peft import LoraConfig, PeftConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer
    try:
        config = LoraConfig(use_dora=True, **settings) if adapter is None else PeftConfig.from_pretrained(adapter)
    except json.JSONDecodeError as error:
        raise ValueError(f"the adapter_config.json of {adapter}: {error}") from None
    if not getattr(config, "use_dora", False):
        raise ValueError(f"the adapter {adapter} is not DoRA: its adapter_config.json has no use_dora")
    config.inference_mode = False
    with torch.device("meta"):
        if not hasattr(model, "prepare_inputs_for_generation"):
            config.task_type = None
        adapted = get_peft_model(model, config, autocast_adapter_dtype=float32)
    for layer in adapted.modules() if not float32 else ():
        if isinstance(layer, BaseTunerLayer):  # PEFT casts adapters to the type of the base, but not on "meta"
            for name in (*layer.adapter_layer_names, *layer.other_param_names):
                part = getattr(layer, name, None)
                if isinstance(part, (torch.nn.ModuleDict, torch.nn.ParameterDict)):
                    part.to(layer.get_base_layer().weight.dtype)
    return adapted


def inputs_of(model, tokens, batch, image, dtype):
    """The inputs of a call of a model of transformers or diffusers: `batch` sequences of so many tokens, of which one
    begins with an image if it is wanted and the model takes some. Floating point numbers have the base's type."""
    return torch.utils._pytree.tree_map(
        lambda one: one.to(dtype) if isinstance(one, torch.Tensor) and one.is_meta else one,
        _inputs_of(model, tokens, batch, image))


def _inputs_of(model, tokens, batch, image):
    config = model.config
    kind = type(model).__name__
    if "UNet" in kind or "Transformer2D" in kind:
        return _of_diffusers(config, kind, tokens, batch)
    name = getattr(model, "main_input_name", "input_ids")
    given = {}
    if name == "pixel_values":
        return {name: _picture(config, batch)}
    if name == "input_features":
        given[name] = torch.empty(batch, config.num_mel_bins, 2 * config.max_source_positions, device="meta")
    else:
        given[name] = torch.zeros(batch, tokens, dtype=torch.long)
    if getattr(config, "is_encoder_decoder", False):
        longest = getattr(config, "max_target_positions", tokens)
        given["decoder_input_ids"] = torch.zeros(batch, min(tokens, longest), dtype=torch.long)
    if image:
        if getattr(config, "vision_config", None) is None:
            raise ValueError("--image would have no effect: the model takes text alone")
        try:
            _add_image(given, config)
        except (AttributeError, TypeError):  # the config has other fields than those of the kinds below
            raise ValueError(f"the inputs of {kind} with an image are not known here; {OWN_FUNCTION}") from None
    return given


def _picture(config, batch):
    sides = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
    return torch.empty(batch, getattr(config, "num_channels", 3), *sides, device="meta")


def _add_image(given, config):
    """An image as the processors of these models make it, whose tokens are the first ones of the first sequence."""
    vision, ids = config.vision_config, given["input_ids"]
    image_token = getattr(config, "image_token_id", None)
    image_token = config.image_token_index if image_token is None else image_token
    merge = getattr(vision, "spatial_merge_size", None) or getattr(config, "spatial_merge_size", None)
    count = getattr(config, "mm_tokens_per_image", None)
    if hasattr(vision, "temporal_patch_size"):  # Qwen's
        side = merge * max(int(((ids.shape[1] - 2) // 2) ** 0.5), 1)
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size ** 2
        given["pixel_values"] = torch.empty(side * side, width, device="meta")
        given["image_grid_thw"] = torch.tensor([[1, side, side]])
        count = (side // merge) ** 2
        given["mm_token_type_ids"] = torch.zeros_like(ids)
    elif count is not None:  # Gemma's
        given["pixel_values"] = _picture(vision, 1)
        given["token_type_ids"] = torch.zeros_like(ids)
    else:  # Pixtral
        cells = max(int(((ids.shape[1] - 2) // 2) ** 0.5), 1)
        side = cells * merge * vision.patch_size
        given["pixel_values"] = torch.empty(1, 3, side, side, device="meta")
        given["image_sizes"] = torch.tensor([[side, side]])
        count = cells ** 2
    if count > ids.shape[1]:
        raise ValueError(f"an image has {count} tokens, more than the {ids.shape[1]} of --tokens; give more")
    ids[0, :count] = image_token
    for name in ("token_type_ids", "mm_token_type_ids"):
        if name in given:
            given[name][0, :count] = 1


def _of_diffusers(config, kind, tokens, batch):
    """`tokens` are those of the image."""
    side = max(int(tokens ** 0.5), 1)
    if kind == "UNet2DConditionModel":
        side *= 2 ** (len(config.block_out_channels) - 1)
        given = {"sample": torch.empty(batch, config.in_channels, side, side, device="meta"), "timestep": torch.tensor(1),
                 "encoder_hidden_states": torch.empty(batch, 77, config.cross_attention_dim, device="meta")}
        if config.addition_embed_type == "text_time":  # SDXL: two text encoders, sizes and crops
            pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            given["added_cond_kwargs"] = {"text_embeds": torch.empty(batch, pooled, device="meta"),
                                          "time_ids": torch.zeros(batch, 6, device="meta")}
        return given
    if kind != "FluxTransformer2DModel":
        raise ValueError(f"the inputs of diffusers' {kind} are not known here; {OWN_FUNCTION}")
    text = min(tokens, 512)
    guidance = {"guidance": torch.empty(batch, device="meta")} if config.guidance_embeds else {}
    return {**guidance, "hidden_states": torch.empty(batch, tokens, config.in_channels, device="meta"),
            "encoder_hidden_states": torch.empty(batch, text, config.joint_attention_dim, device="meta"),
            "pooled_projections": torch.empty(batch, config.pooled_projection_dim, device="meta"),
            "timestep": torch.empty(batch, device="meta"), "img_ids": torch.zeros(tokens, 3),
            "txt_ids": torch.zeros(text, 3)}
