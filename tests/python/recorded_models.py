"""A server of recordings and real runs of tiny models, each in a forked process with an engine of its own: it reads
[model, recipe, options] as a line of JSON and writes {"recorded": problems, "run": problems}, or {"error": text}.

The recording has the model's config alone, as `python -m dorajit.prewarm` has it; the real run has weights.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback

import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import BitsAndBytesConfig

import dorajit
from dorajit import _native
from dorajit.operations import recording
from dorajit.prewarm import models, passes

TOKENS, RANK = 24, 8
_TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 128}
_SEEING = {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 64, "patch_size": 4,
           "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 256,
           "deepstack_visual_indexes": [0]}
_IN_LANGUAGE = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
_OF_ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
# Name -> (config, target modules, whether the input has an image)
MODELS = {
    "llama": ({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_TEXT}, "all-linear", False),
    "qwen3": ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_TEXT, "head_dim": 32}, "all-linear",
              False),
    "gemma3": ({"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], **_TEXT, "head_dim": 32,
                "sliding_window": 8}, "all-linear", False),
    "mixtral": ({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **_TEXT, "num_local_experts": 4},
                ["q_proj", "k_proj", "v_proj", "o_proj"], False),
    "qwen3_5": ({"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], **_TEXT, "head_dim": 16,
                 "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 16,
                 "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4}, "all-linear",
                False),
    "gpt2": ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4, "n_layer": 2,
              "vocab_size": 128, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2}, ["c_attn", "c_proj", "c_fc"], False),
    "bert": ({"model_type": "bert", "architectures": ["BertForSequenceClassification"], **_TEXT,
              "max_position_embeddings": 64}, "all-linear", False),
    "vit": ({"model_type": "vit", "architectures": ["ViTForImageClassification"], **_TEXT, "image_size": 16,
             "patch_size": 4}, "all-linear", False),
    "whisper": ({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 64,
                 "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                 "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 128, "num_mel_bins": 16,
                 "max_source_positions": 20, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
                 "eos_token_id": 2, "decoder_start_token_id": 1},
                ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"], False),
    "t5": ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_kv": 16, "d_ff": 128,
            "num_layers": 2, "num_heads": 4, "vocab_size": 128, "decoder_start_token_id": 0}, ["q", "k", "v", "o", "wi", "wo"], False),
    "qwen3_vl": ({"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 120,
                  "video_token_id": 121, "vision_start_token_id": 122, "vision_end_token_id": 123,
                  "text_config": {"model_type": "qwen3_vl_text", **_TEXT, "head_dim": 16,
                                  "rope_parameters": {"rope_type": "default", "mrope_interleaved": True,
                                                      "mrope_section": [4, 2, 2], "rope_theta": 10000.0}},
                  "vision_config": {"model_type": "qwen3_vl", **_SEEING}}, "all-linear", True),
    "gemma3_vision": ({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
                       "mm_tokens_per_image": 4, "image_token_index": 120, "boi_token_index": 121, "eoi_token_index": 122,
                       "text_config": {"model_type": "gemma3_text", **_TEXT, "head_dim": 32, "sliding_window": 8},
                       "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128,
                                         "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
                                         "patch_size": 4, "vision_use_head": False}}, "all-linear", True),
    "mistral3": ({"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"],
                  "image_token_index": 120, "spatial_merge_size": 2, "vision_feature_layer": -1,
                  "text_config": {"model_type": "mistral", **_TEXT, "head_dim": 32},
                  "vision_config": {"model_type": "pixtral", "hidden_size": 64, "intermediate_size": 128,
                                    "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "image_size": 64,
                                    "patch_size": 4}}, "all-linear", True),
    "flux": ({"_class_name": "FluxTransformer2DModel", "in_channels": 16, "num_layers": 1, "num_single_layers": 1,
              "attention_head_dim": 16, "num_attention_heads": 4, "joint_attention_dim": 32, "pooled_projection_dim": 32,
              "guidance_embeds": True, "axes_dims_rope": [4, 6, 6]}, _OF_ATTENTION, False),
    "sdxl": ({"_class_name": "UNet2DConditionModel", "sample_size": 8, "block_out_channels": [32, 64],
              "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
              "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "layers_per_block": 1, "attention_head_dim": [2, 4],
              "transformer_layers_per_block": [1, 2], "cross_attention_dim": 32, "use_linear_projection": True,
              "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
              "projection_class_embeddings_input_dim": 80, "norm_num_groups": 8}, _OF_ATTENTION + ["conv1", "conv2"], False),
}
MODELS["qwen3_vl_language"] = (MODELS["qwen3_vl"][0], _IN_LANGUAGE, True)


def _folder(config):
    folder = tempfile.mkdtemp(dir=os.environ["DORAJIT_CACHE_DIR"])
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    return folder


def _adapter(targets, options):
    return {"r": RANK, "lora_alpha": 16, "lora_dropout": options.get("dropout", 0.0), "target_modules": targets}


def _target(device):
    return recording.Target(device, torch.cuda.get_device_capability() if device == "cuda" else (0, 0))


def _recorded(folder, recipe, targets, image, options):
    dtype, float32, autocast, has_4_bits = models.RECIPES[recipe]
    model = models.build(folder, dtype)
    if has_4_bits:
        models.quantize(model)
    adapted = models.adapt(model, float32, **_adapter(targets, options))
    if options.get("checkpoint"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = models.inputs_of(model, TOKENS, 1, image, dtype)
    with recording.record(_target(options["device"])) as problems:
        passes.run(adapted, [inputs], True, True, autocast)
    return sorted(problems)


def _quantize(model, device):
    """What diffusers' from_pretrained does with BitsAndBytesConfig, which asks for a GPU."""
    import bitsandbytes
    for owner in list(model.modules()):
        for name, layer in list(owner.named_children()):
            if type(layer) is torch.nn.Linear:
                made = bitsandbytes.nn.Linear4bit(layer.in_features, layer.out_features, layer.bias is not None,
                                                  torch.bfloat16, quant_type="nf4", device="meta")
                made.weight = bitsandbytes.nn.Params4bit(layer.weight.detach(), requires_grad=False, quant_type="nf4",
                                                         compress_statistics=True)
                made.bias = layer.bias
                made.support_avx512bf16_for_cpu = False  # its layout takes no narrow layers
                owner._modules[name] = made.to(device)
    model.is_loaded_in_4bit = True


def _real(folder, recipe, targets, image, options):
    dtype, float32, autocast, has_4_bits = models.RECIPES[recipe]
    device = options["device"]
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    if "_class_name" in config:
        import diffusers
        model = getattr(diffusers, config["_class_name"]).from_config(config).to(dtype)
        if has_4_bits:
            _quantize(model, device)
    else:
        kind = getattr(transformers, config["architectures"][0])
        model = kind._from_config(transformers.AutoConfig.for_model(**config), dtype=dtype)
    if has_4_bits and "_class_name" not in config:
        model.save_pretrained(folder)
        model = kind.from_pretrained(folder, device_map=device, dtype=dtype, quantization_config=BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16))
    torch.nn.Module.to(model, device)  # transformers' own refuses 4 bits
    adapted = get_peft_model(model, LoraConfig(use_dora=True, **_adapter(targets, options)),
                             autocast_adapter_dtype=float32)
    if options.get("checkpoint"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = torch.utils._pytree.tree_map(
        lambda one: torch.zeros_like(one, device=device) if one.is_meta else one.to(device),
        models.inputs_of(model, TOKENS, 1, image, dtype))
    dorajit.patch_peft(adapted)
    with torch.autocast(device, autocast, enabled=autocast is not None):
        adapted.train()
        found = adapted(**inputs)
        (found.logits if hasattr(found, "logits") else found[0]).float().square().mean().backward()
        adapted.eval()
        with torch.no_grad():
            passed = adapted(**inputs)
            if getattr(passed, "past_key_values", None) is not None and hasattr(model, "generate"):
                adapted.generate(**inputs, max_new_tokens=2, min_new_tokens=2, do_sample=False)
    return sorted({one["problem"] for one in _native.statistics()["plans"]})


def _answer(model, recipe, options):
    config, targets, image = MODELS[model]
    folder = _folder(config)
    with dorajit.control.state.switches["joins_mlp"].override(options.get("mlp", True)):
        return {"recorded": _recorded(folder, recipe, targets, image, options),
                "run": _real(folder, recipe, targets, image, options)}


def _answer_text(line):
    try:
        return json.dumps(_answer(*json.loads(line)))
    except BaseException:
        return json.dumps({"error": traceback.format_exc()})


def _forked(line):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with open(writing, "w", encoding="utf-8") as out:
            out.write(_answer_text(line))
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as made:
        text = made.read()
    os.waitpid(child, 0)
    return text


def _started(line):
    """CUDA does not work in a process forked from one that has asked for devices, as bitsandbytes does when imported."""
    return subprocess.run([sys.executable, "-W", "ignore", __file__, line], stdout=subprocess.PIPE, text=True,
                          check=False).stdout


def _serve():
    answers = open(os.dup(1), "w", encoding="utf-8")  # libraries print to descriptor 1
    os.dup2(2, 1)
    for line in sys.argv[1:]:
        print(_answer_text(line), file=answers, flush=True)
    for line in sys.stdin if len(sys.argv) == 1 else ():
        is_on_cpu = json.loads(line)[2]["device"] == "cpu"
        print((_forked if is_on_cpu else _started)(line).strip() or '{"error": "the process ended"}', file=answers, flush=True)


if __name__ == "__main__":
    _serve()
