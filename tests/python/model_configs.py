"""Configs of models, tiny ones and those of published checkpoints, and what their adapters adapt."""

_TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 128}
_SEEING = {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "out_hidden_size": 64, "patch_size": 4,
           "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 256,
           "deepstack_visual_indexes": [0]}
_OF_DIFFUSION = ["to_q", "to_k", "to_v", "to_out.0"]
# Name -> target_modules, where they are not "all-linear"
_TARGETS = {
    "mixtral": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
    "whisper": ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"],
    "t5": ["q", "k", "v", "o", "wi", "wo"],
    "qwen3_vl_language": r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
    "flux": _OF_DIFFUSION,
    "sdxl": [*_OF_DIFFUSION, "conv1", "conv2"],
}
# The input begins with an image.
_WITH_IMAGES = {"qwen3_vl", "qwen3_vl_language", "gemma3_vision", "mistral3"}

TINY = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_TEXT},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_TEXT, "head_dim": 32},
    "gemma3": {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], **_TEXT, "head_dim": 32,
               "sliding_window": 8},
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **_TEXT, "num_local_experts": 4},
    "qwen3_5": {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], **_TEXT, "head_dim": 16,
                "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 16,
                "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_head": 4, "n_layer": 2,
             "vocab_size": 128, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2},
    "bert": {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **_TEXT,
             "max_position_embeddings": 64},
    "vit": {"model_type": "vit", "architectures": ["ViTForImageClassification"], **_TEXT, "image_size": 16,
            "patch_size": 4},
    "whisper": {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 64,
                "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 128, "num_mel_bins": 16,
                "max_source_positions": 20, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
                "eos_token_id": 2, "decoder_start_token_id": 1},
    "t5": {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_kv": 16, "d_ff": 128,
           "num_layers": 2, "num_heads": 4, "vocab_size": 128, "decoder_start_token_id": 0},
    "qwen3_vl": {"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 120,
                 "video_token_id": 121, "vision_start_token_id": 122, "vision_end_token_id": 123,
                 "text_config": {"model_type": "qwen3_vl_text", **_TEXT, "head_dim": 16,
                                 "rope_parameters": {"rope_type": "default", "mrope_interleaved": True,
                                                     "mrope_section": [4, 2, 2], "rope_theta": 10000.0}},
                 "vision_config": {"model_type": "qwen3_vl", **_SEEING}},
    "gemma3_vision": {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
                      "mm_tokens_per_image": 4, "image_token_index": 120, "boi_token_index": 121, "eoi_token_index": 122,
                      "text_config": {"model_type": "gemma3_text", **_TEXT, "head_dim": 32, "sliding_window": 8},
                      "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128,
                                        "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
                                        "patch_size": 4, "vision_use_head": False}},
    "mistral3": {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"],
                 "image_token_index": 120, "spatial_merge_size": 2, "vision_feature_layer": -1,
                 "text_config": {"model_type": "mistral", **_TEXT, "head_dim": 32},
                 "vision_config": {"model_type": "pixtral", "hidden_size": 64, "intermediate_size": 128,
                                   "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "image_size": 64,
                                   "patch_size": 4}},
    "flux": {"_class_name": "FluxTransformer2DModel", "in_channels": 16, "num_layers": 1, "num_single_layers": 1,
             "attention_head_dim": 16, "num_attention_heads": 4, "joint_attention_dim": 32, "pooled_projection_dim": 32,
             "guidance_embeds": True, "axes_dims_rope": [4, 6, 6]},
    "sdxl": {"_class_name": "UNet2DConditionModel", "sample_size": 8, "block_out_channels": [32, 64],
             "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
             "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "layers_per_block": 1, "attention_head_dim": [2, 4],
             "transformer_layers_per_block": [1, 2], "cross_attention_dim": 32, "use_linear_projection": True,
             "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
             "projection_class_embeddings_input_dim": 80, "norm_num_groups": 8},
}
TINY["qwen3_vl_language"] = TINY["qwen3_vl"]


_EIGHT_BILLION = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
# Those of Llama-3.1-8B, Qwen3-8B, Gemma-3-1B and 4B, Mistral-Small-3.2-24B, Mixtral-8x7B, Qwen3.5-9B, GPT-2, BERT-base,
# ViT-base, Whisper-large-v3, T5-base, Qwen3-VL-8B, FLUX.1-dev and SDXL, without what no size of a tensor depends on.
TRUE = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_EIGHT_BILLION, "intermediate_size": 14336,
              "num_hidden_layers": 32, "vocab_size": 128256},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **_EIGHT_BILLION, "intermediate_size": 12288,
              "num_hidden_layers": 36, "vocab_size": 151936, "head_dim": 128},
    "gemma3": {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 1152,
               "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
               "head_dim": 256, "sliding_window": 512, "vocab_size": 262144},
    "gemma3_vision": {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
                      "mm_tokens_per_image": 256, "image_token_index": 262144,
                      "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                                      "num_hidden_layers": 34, "sliding_window": 1024, "vocab_size": 262208},
                      "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152,
                                        "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
                                        "image_size": 896, "patch_size": 14, "vision_use_head": False}},
    "mistral3": {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
                 "multimodal_projector_bias": False, "spatial_merge_size": 2, "vision_feature_layer": -1,
                 "text_config": {"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768,
                                 "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
                                 "head_dim": 128, "sliding_window": None, "vocab_size": 131072},
                 "vision_config": {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096,
                                   "num_hidden_layers": 24, "num_attention_heads": 16, "head_dim": 64,
                                   "image_size": 1540, "patch_size": 14}},
    "mixtral": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **_EIGHT_BILLION, "intermediate_size": 14336,
                "num_hidden_layers": 32, "vocab_size": 32000, "num_local_experts": 8, "sliding_window": None},
    "qwen3_5": {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 248320,
                "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
                "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4, "linear_key_head_dim": 128,
                "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
             "vocab_size": 50257, "n_positions": 1024},
    "bert": {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 768,
             "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522,
             "max_position_embeddings": 512},
    "vit": {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 768,
            "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224,
            "patch_size": 16},
    "whisper": {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 1280,
                "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20,
                "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "vocab_size": 51866, "num_mel_bins": 128,
                "max_source_positions": 1500, "max_target_positions": 448, "pad_token_id": 50256},
    "t5": {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 768, "d_kv": 64, "d_ff": 3072,
           "num_layers": 12, "num_heads": 12, "vocab_size": 32128, "decoder_start_token_id": 0},
    "qwen3_vl": {"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655,
                 "video_token_id": 151656,
                 "text_config": {"model_type": "qwen3_vl_text", **_EIGHT_BILLION, "intermediate_size": 12288,
                                 "num_hidden_layers": 36, "vocab_size": 151936, "head_dim": 128,
                                 "rope_parameters": {"rope_type": "default", "mrope_interleaved": True,
                                                     "mrope_section": [24, 20, 20], "rope_theta": 5000000}},
                 "vision_config": {"model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304,
                                   "num_heads": 16, "out_hidden_size": 4096, "patch_size": 16, "spatial_merge_size": 2,
                                   "temporal_patch_size": 2, "num_position_embeddings": 2304,
                                   "deepstack_visual_indexes": [8, 16, 24]}},
    "flux": {"_class_name": "FluxTransformer2DModel", "in_channels": 64, "num_layers": 19, "num_single_layers": 38,
             "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 4096,
             "pooled_projection_dim": 768, "guidance_embeds": True, "axes_dims_rope": [16, 56, 56]},
    "sdxl": {"_class_name": "UNet2DConditionModel", "sample_size": 128, "block_out_channels": [320, 640, 1280],
             "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
             "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], "layers_per_block": 2,
             "attention_head_dim": [5, 10, 20], "transformer_layers_per_block": [1, 2, 10], "cross_attention_dim": 2048,
             "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
             "projection_class_embeddings_input_dim": 2816},
}
TRUE["qwen3_vl_language"] = TRUE["qwen3_vl"]

# What a config has fewer of with `shallow`, and how many it then has: two of each kind of layer, because the first one
# computes no gradient of its input.
_FEWER = {"num_hidden_layers": 2, "n_layer": 2, "encoder_layers": 2, "decoder_layers": 2, "num_layers": 2,
          "num_single_layers": 2, "depth": 2, "num_local_experts": 2, "vocab_size": 512}


def shallow(config):
    """The config with few layers, experts and tokens: a model of its sizes in little memory."""
    made = {}
    for name, value in config.items():
        if isinstance(value, dict):
            made[name] = shallow(value)
        elif name == "deepstack_visual_indexes":
            made[name] = [0]
        elif name == "transformer_layers_per_block":
            made[name] = [1] * len(value)
        elif name.endswith(("_token_id", "_token_index")):
            made[name] = value if value < _FEWER["vocab_size"] else _FEWER["vocab_size"] - 1 - ("video" in name)
        else:
            made[name] = min(value, _FEWER[name]) if name in _FEWER else value
    if "full_attention_interval" in config:
        made.update(full_attention_interval=2, num_hidden_layers=3)  # the first and the last have linear attention
    return made


def targets(name):
    """target_modules of the model's adapter."""
    return _TARGETS.get(name, "all-linear")


def has_image(name):
    """Whether the model's input has an image."""
    return name in _WITH_IMAGES
