"""The parts of T5 and mT5 that become files: loaded, exported, optimized, compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.conversion import OPSET, Conversion, mixed_precision, part_path
from sardonyx.transformers.encoder_decoders import DECODER, ENCODER_OF_CACHES, FIRST_STEP, SIZES, Part
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package

PRETRAINED_T5_MODELS = [f"t5-{size}" for size in ("small", "base", "large", "3b", "11b")]
PRETRAINED_MT5_MODELS = [f"google/mt5-{size}" for size in ("small", "base", "large", "xl", "xxl")]
LOADERS = {"t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration"}
KEPT_IN_FLOAT = ["SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add"]
"""Ops that stay in float32 where precisions are mixed."""


class T5Helper:
    """What the converter is made of."""

    @staticmethod
    def get_onnx_path(output_dir: str, model_name_or_path: str, suffix: str = "", new_folder: bool = False) -> str:
        """Where a part is written."""
        return part_path(output_dir, model_name_or_path, suffix, new_folder)

    @staticmethod
    def load_model(
        model_name_or_path: str,
        cache_dir: str | None,
        device: Any = None,
        model_type: str = "t5",
        state_dict_path: str = "",
        encoder_decoder_init: bool = False,
    ) -> dict[str, Part]:
        """The parts by their names: an encoder, with the first step of the decoder if that is asked for, and a decoder."""
        if model_type not in LOADERS:
            raise ValueError(f"the type of the model is {model_type!r}; {' and '.join(LOADERS)} are known")
        loader = getattr(transformers_package(), LOADERS[model_type])
        model = loader.from_pretrained(model_name_or_path, cache_dir=cache_dir, attn_implementation="eager").eval()
        if state_dict_path:
            model.load_state_dict(loaded_torch().load(state_dict_path, weights_only=True))
        name, kind = ("encoder_decoder_init", FIRST_STEP) if encoder_decoder_init else ("encoder", ENCODER_OF_CACHES)
        return {name: Part(model, *kind), "decoder": Part(model, *DECODER)}

    @staticmethod
    def export_onnx(
        model: Any,
        device: Any,
        onnx_model_path: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_decoder_input_ids: bool = True,
        use_int32_inputs: bool = False,
    ) -> None:
        """Write a part as PyTorch exports it."""
        part = _of_integers(model, use_int32_inputs)
        if not use_decoder_input_ids and "source" in part.takes:
            part = part.without_words()
        part.export(onnx_model_path, OPSET, use_external_data_format)

    @staticmethod
    def auto_mixed_precision(
        onnx_model: OnnxModel,
        op_block_list: list[str] | None = None,
        force_fp16_logits: bool = False,
        use_symbolic_shape_infer: bool = True,
    ) -> dict[str, Any]:
        """Let a fused model compute in float16, but for some ops and for logits; gives the arguments of the conversion."""
        parameters = mixed_precision(onnx_model, op_block_list or KEPT_IN_FLOAT, force_fp16_logits)
        onnx_model.convert_float_to_float16(use_symbolic_shape_infer=use_symbolic_shape_infer, **parameters)
        return parameters

    @staticmethod
    def optimize_onnx(
        onnx_model_path: str,
        optimized_model_path: str,
        is_float16: bool,
        num_attention_heads: int,
        hidden_size: int,
        use_external_data_format: bool = False,
        auto_mixed_precision: bool = True,
        use_gpu: bool = False,
        force_fp16_io: bool = False,
    ) -> None:
        """Write an exported part with its blocks fused, in float16 if that is asked for."""
        precision = Precision.FLOAT16 if is_float16 else Precision.FLOAT32
        options = FusionOptions("t5")
        options.enable_skip_layer_norm = not (is_float16 and auto_mixed_precision)  # its sums would be float16

        def half_options(model: OnnxModel) -> dict[str, Any]:
            if auto_mixed_precision:
                return mixed_precision(model, KEPT_IN_FLOAT, force_fp16_io)
            return {"keep_io_types": not force_fp16_io}

        conversion = Conversion(
            "t5",
            num_attention_heads,
            hidden_size,
            precision=precision,
            use_external_data_format=use_external_data_format,
            half_options=half_options,
        )
        conversion.optimize(onnx_model_path, optimized_model_path, options)

    @staticmethod
    def verify_onnx(model: Any, ort_session: Any, device: Any, use_int32_inputs: bool) -> float:
        """How far the outputs of a session are from PyTorch's at most."""
        part = _of_integers(model, use_int32_inputs)
        given = [value.name for value in ort_session.get_inputs()]
        if "source" in part.takes and "decoder_input_ids" not in given:
            part = part.without_words()
        return part.difference_of(ort_session, len(SIZES), SIZES)


def _of_integers(model: Any, use_int32_inputs: bool) -> Part:
    """The part that was given, or that of one of the modules beside this."""
    part: Part = getattr(model, "part", model)
    return part.with_integers(np.int32 if use_int32_inputs else np.int64)
