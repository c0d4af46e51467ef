"""What the optimizer of transformers may fuse. Each option stands for stages of our optimizer, which it leaves out."""

from __future__ import annotations

import argparse
from enum import Enum


class AttentionMaskFormat:
    """How a mask comes into Attention."""

    MaskIndexEnd = 0
    MaskIndexEndAndStart = 1
    AttentionMask = 2
    NoMask = 3


class AttentionOpType(Enum):
    """Which op attention becomes."""

    Attention = "Attention"
    MultiHeadAttention = "MultiHeadAttention"
    GroupQueryAttention = "GroupQueryAttention"
    PagedAttention = "PagedAttention"

    def __str__(self) -> str:
        return self.value


DIFFUSION = ("unet", "vae", "clip")
DIFFUSION_OPTIONS = (
    "enable_nhwc_conv",
    "enable_group_norm",
    "enable_skip_group_norm",
    "enable_bias_splitgelu",
    "enable_packed_qkv",
    "enable_packed_kv",
    "enable_bias_add",
)
STAGES = {
    "enable_attention": ("AttentionFusion",),
    "enable_layer_norm": ("LayerNormFusion", "SimplifiedLayerNormFusion"),
    "enable_gelu": ("GeluFusion", "FastGeluFusion", "QuickGeluFusion"),
    "enable_bias_gelu": ("BiasGeluFusion",),
    "enable_skip_layer_norm": ("SkipLayerNormFusion",),
    "enable_bias_skip_layer_norm": ("BiasSkipLayerNormFusion",),
    "enable_embed_layer_norm": ("EmbedLayerNormFusion",),
    "enable_rotary_embeddings": ("RotaryEmbeddingFusion",),
}
"""The stages of our optimizer that an option leaves out when it is off."""


class FusionOptions:
    """Switches, with the defaults that suit a type of model."""

    def __init__(self, model_type: str):
        self.model_type = model_type
        self.enable_gelu = True
        self.enable_layer_norm = True
        self.enable_attention = True
        self.enable_rotary_embeddings = True
        self.use_multi_head_attention = False
        self.disable_multi_head_attention_bias = False
        self.enable_skip_layer_norm = True
        self.enable_embed_layer_norm = model_type not in ("clip", "qwen3")
        self.enable_bias_skip_layer_norm = True
        self.enable_bias_gelu = True
        self.enable_gelu_approximation = False
        self.enable_qordered_matmul = True
        self.enable_shape_inference = True
        self.enable_gemm_fast_gelu = False
        self.group_norm_channels_last = True
        self.attention_mask_format = _mask_format(model_type)
        self.attention_op_type: AttentionOpType | None = None
        if model_type in DIFFUSION:
            for name in DIFFUSION_OPTIONS:
                setattr(self, name, True)

    def use_raw_attention_mask(self, use_raw_mask: bool = True) -> None:
        """Whether masks come as they are, or as the position at which a row ends."""
        raw, index = AttentionMaskFormat.AttentionMask, AttentionMaskFormat.MaskIndexEnd
        self.attention_mask_format = raw if use_raw_mask else index

    def disable_attention_mask(self) -> None:
        """Leave masks out: rows are not padded."""
        self.attention_mask_format = AttentionMaskFormat.NoMask

    def set_attention_op_type(self, attn_op_type: AttentionOpType) -> None:
        """Choose the op that attention becomes."""
        self.attention_op_type = attn_op_type

    @property
    def leaves_masks_out(self) -> bool:
        """Whether somebody asked for that; for some types it is the default, and says nothing of the masks of a model."""
        return self.attention_mask_format == AttentionMaskFormat.NoMask != _mask_format(self.model_type)

    def disabled_stages(self) -> set[str]:
        """The stages of our optimizer that these options leave out."""
        return {stage for option, stages in STAGES.items() if not getattr(self, option) for stage in stages}

    @staticmethod
    def parse(args: argparse.Namespace) -> FusionOptions:
        """The options that a command line asks for."""
        options = FusionOptions(args.model_type)
        for option in vars(options):
            if getattr(args, f"disable_{option.removeprefix('enable_')}", False):
                setattr(options, option, False)
        options.enable_gelu_approximation = args.enable_gelu_approximation
        options.enable_gemm_fast_gelu = args.enable_gemm_fast_gelu
        options.use_multi_head_attention = args.use_multi_head_attention
        options.group_norm_channels_last = not args.use_group_norm_channels_first
        if args.use_mask_index or args.use_raw_attention_mask:
            options.use_raw_attention_mask(args.use_raw_attention_mask)
        if args.no_attention_mask:
            options.disable_attention_mask()
        return options

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Let a parser take these options."""
        for option in (*STAGES, *DIFFUSION_OPTIONS, "enable_shape_inference"):
            name = option.removeprefix("enable_")
            parser.add_argument(f"--disable_{name}", action="store_true", help=f"no {name.replace('_', ' ')}")
        parser.set_defaults(**{f"disable_{option.removeprefix('enable_')}": False for option in DIFFUSION_OPTIONS})
        for name, text in (
            ("enable_gelu_approximation", "compute Gelu by its approximation with tanh"),
            ("enable_gemm_fast_gelu", "accepted for compatibility"),
            ("use_mask_index", "masks come as the position at which a row ends"),
            ("use_raw_attention_mask", "masks come as they are"),
            ("no_attention_mask", "leave masks out"),
            ("use_multi_head_attention", "attention becomes MultiHeadAttention"),
            ("use_group_norm_channels_first", "GroupNorm has channels before the picture"),
        ):
            parser.add_argument(f"--{name}", action="store_true", help=text)


def _mask_format(model_type: str) -> int:
    if model_type in ("vit", "qwen3"):
        return AttentionMaskFormat.NoMask
    return AttentionMaskFormat.MaskIndexEnd if model_type == "bert" else AttentionMaskFormat.AttentionMask
