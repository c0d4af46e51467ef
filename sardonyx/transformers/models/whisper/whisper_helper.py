"""The parts of Whisper that become files: loaded, exported, optimized."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.conversion import OPSET, Conversion, part_path
from sardonyx.transformers.encoder_decoders import DECODER, DECODER_INIT, ENCODER, ENCODER_AND_CACHES, FIRST_STEP, Part
from sardonyx.transformers.torch_onnx_export_helper import transformers_package

PRETRAINED_WHISPER_MODELS = [
    f"whisper-{size}" for size in ("tiny", "base", "small", "medium", "large", "large-v2", "large-v3", "large-v3-turbo")
]


class WhisperHelper:
    """What the converter is made of."""

    @staticmethod
    def get_onnx_path(output_dir: str, model_name_or_path: str, suffix: str = "", new_folder: bool = False) -> str:
        """Where a part is written."""
        return part_path(output_dir, model_name_or_path, suffix, new_folder)

    @staticmethod
    def save_processing(
        model_name_or_path: str,
        provider: str,
        separate_encoder_and_decoder_init: bool,
        use_decoder_masked_mha: bool,
        output_qk: bool,
        encoder_path: str,
        decoder_path: str,
        output_dir: str,
        cache_dir: str | None,
    ) -> None:
        """Write the configuration beside the parts, and the tokenizer and the processor of sound if the model has them."""
        hub = transformers_package()
        hub.WhisperConfig.from_pretrained(model_name_or_path, cache_dir=cache_dir).save_pretrained(output_dir)
        for kind in (hub.AutoTokenizer, hub.WhisperProcessor):
            try:
                companion = kind.from_pretrained(model_name_or_path, cache_dir=cache_dir)
            except (OSError, ValueError, TypeError):  # the folder holds weights alone
                continue
            companion.save_pretrained(output_dir)

    @staticmethod
    def load_model(
        model_name_or_path: str,
        model_impl: str = "hf",
        cache_dir: str | None = None,
        device: Any = None,
        dtype: Any = None,
        merge_encoder_and_decoder_init: bool = True,
        no_beam_search_op: bool = False,
        output_qk: bool = False,
    ) -> dict[str, Part]:
        """The parts by their names: a decoder, an encoder, and the decoder's first step alone if the encoder is not to have it."""
        if model_impl != "hf":
            raise NotImplementedError(
                f"models of {model_impl!r} are not loaded; give the name of one of the transformers package"
            )
        if output_qk:
            raise NotImplementedError("times of words are not computed; leave output_qk out")
        loader = transformers_package().WhisperForConditionalGeneration
        model = loader.from_pretrained(model_name_or_path, cache_dir=cache_dir, attn_implementation="eager").eval()
        parts = {"decoder": Part(model, *DECODER)}
        if not merge_encoder_and_decoder_init:
            parts["encoder"] = Part(model, *ENCODER, source_name="audio_features")
            parts["decoder_init"] = Part(model, *DECODER_INIT)
        elif no_beam_search_op:
            parts["encoder"] = Part(model, *ENCODER_AND_CACHES, source_name="audio_features")
        else:
            parts["encoder"] = Part(model, *FIRST_STEP)
        return parts

    @staticmethod
    def export_onnx(
        model: Part,
        onnx_model_path: str,
        provider: str = "cpu",
        verbose: bool = False,
        use_external_data_format: bool = False,
        use_fp16_inputs: bool = False,
        use_int32_inputs: bool = True,
        use_encoder_hidden_states: bool = False,
        use_kv_cache_inputs: bool = True,
    ) -> None:
        """Write a part as PyTorch exports it, in float32."""
        part = model.with_integers(np.int32 if use_int32_inputs else np.int64)
        part.export(onnx_model_path, OPSET, use_external_data_format)

    @staticmethod
    def optimize_onnx(
        onnx_model_path: str,
        optimized_model_path: str,
        is_float16: bool,
        num_attention_heads: int,
        hidden_size: int,
        num_decoder_layers: int,
        use_external_data_format: bool = False,
        use_gpu: bool = False,
        provider: str = "cpu",
        is_decoder: bool = False,
        no_beam_search_op: bool = False,
        use_decoder_masked_mha: bool = False,
        output_qk: bool = False,
    ) -> None:
        """Write an exported part with its blocks fused, in float16 if that is asked for."""
        precision = Precision.FLOAT16 if is_float16 else Precision.FLOAT32
        conversion = Conversion(
            "bart",
            num_attention_heads,
            hidden_size,
            precision=precision,
            use_external_data_format=use_external_data_format,
            half_options=lambda model: {"keep_io_types": False},
        )
        conversion.optimize(onnx_model_path, optimized_model_path)
