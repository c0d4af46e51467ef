"""Phi-2 of the transformers package as one ONNX file: fused, of the precision that is asked for.

`python -m sardonyx.transformers.models.phi2.convert_to_onnx --fp32_cpu --int4_cpu --output_dir FOLDER`
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from sardonyx.transformers.benchmark_helper import Precision, setup_logger
from sardonyx.transformers.convert_generation import replace_mha_with_gqa
from sardonyx.transformers.decoders import Decoder
from sardonyx.transformers.fusion_options import AttentionOpType, FusionOptions
from sardonyx.transformers.models.phi2.inference_example import run_phi2
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.optimizer import optimize_model
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

OPSET = 17
FOR_CPU = {"fp32_cpu": Precision.FLOAT32, "int4_cpu": Precision.INT4}
FOR_GPU = "fp32_gpu", "fp16_gpu", "int4_gpu", "fp16_gpu_sm8x", "int4_gpu_sm8x", "fp16_vllm", "int4_vllm"
"""Kinds of files, which are options of the program."""
KNOWN_OPS = AttentionOpType.MultiHeadAttention, AttentionOpType.GroupQueryAttention


@dataclass(frozen=True)
class PhiDecoder(Decoder):
    """A decoder under the names that files of Phi-2 have by custom; the mask tells the places of words."""

    integers: type[np.generic] = np.int32

    def cache_names(self, prefix: str) -> list[str]:
        time = prefix.partition("_")[0]
        return [f"{time}_{kind}_{layer}" for layer in range(self.layers) for kind in ("key", "value")]

    @property
    def input_names(self) -> list[str]:
        return ["input_ids", "attention_mask", *self.cache_names("past_key_values")]

    def feeds(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        feeds = super().feeds(sizes, rng)
        return {name: feeds[name] for name in self.input_names}

    def open_axes(self) -> dict[str, dict[int, str]]:
        return {name: axes for name, axes in super().open_axes().items() if name != "position_ids"}

    def call(self, model: Any, **inputs: Any) -> Sequence[Any]:
        words = inputs["input_ids"]
        places = (inputs["attention_mask"].long().cumsum(-1) - 1).clamp(min=0)[:, -words.shape[1] :]
        places = places.reshape(words.shape)  # as they are, and so the optimizer knows the shape
        return super().call(model, position_ids=places, **inputs)


class ConvertPhi2ToONNX:
    """Exports a model, and makes files of the exported one."""

    def __init__(self, device: Any = "cpu", model_class: str = "microsoft/phi-2", cache_dir: str = "./cache"):
        self.device, self.model_class, self.cache_dir = device, model_class, cache_dir
        self.phi_config = transformers_package().AutoConfig.from_pretrained(model_class, cache_dir=cache_dir)
        self.phi_model: Any = None
        self.attn_op_type, self.precision = AttentionOpType.MultiHeadAttention, Precision.FLOAT32
        self.set_quantization_params(16, None)

    def set_quantization_params(self, block_size: int, accuracy_level: int | None) -> None:
        """How weights of 4 bits are made: how many share a scale, and how exact products are."""
        self.block_size, self.accuracy_level = block_size, accuracy_level

    def init_attn_type_and_precision(self, attn_op_type: AttentionOpType, precision: Precision) -> None:
        """What the next file is to have."""
        if attn_op_type not in KNOWN_OPS:
            raise ValueError(f"{attn_op_type} needs a GPU here; on the CPU there are {', '.join(map(str, KNOWN_OPS))}")
        self.attn_op_type, self.precision = attn_op_type, precision

    def erase_onnx_model(self, onnx_path: str) -> None:
        """Remove a file, and those of its weights."""
        model = onnx.load(onnx_path, load_external_data=False)
        entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location")
        folder = Path(onnx_path).resolve().parent
        paths = {(folder / entry.value).resolve() for entry in entries}
        for path in paths:
            if path.parent == folder:  # a model may name any file
                path.unlink(missing_ok=True)
        Path(onnx_path).unlink()

    def get_phi2_torch_model(self) -> Any:
        """The module, which is loaded once."""
        if self.phi_model is None:
            loader = transformers_package().AutoModelForCausalLM
            model = loader.from_pretrained(self.model_class, cache_dir=self.cache_dir, attn_implementation="eager")
            self.phi_model = model.float().to(self.device).eval()
        return self.phi_model

    def get_phi2_torch_inputs(self, batch_size: int, sequence_length: int) -> tuple[Any, Any, Any]:
        """The last of random words, the mask of all, and keys and values of those before."""
        torch = loaded_torch()
        words = torch.randint(0, self.phi_config.vocab_size, (batch_size, sequence_length + 1), device=self.device)
        with torch.no_grad():
            past = self.get_phi2_torch_model()(words[:, :-1], use_cache=True).past_key_values
        return words[:, -1:], torch.ones_like(words), past

    def dynamo_export(self, onnx_path: str) -> None:
        """Export the module. PyTorch traces it: the exporter that gave this its name is no part of PyTorch any more."""
        PhiDecoder(self.get_phi2_torch_model()).export(onnx_path, OPSET, use_external_data_format=True)

    def optimize_phi2_onnx(self, onnx_path: str, onnx_path_opt: str) -> None:
        """Write a fused copy with the op and in the precision that were chosen."""
        heads, width = self.phi_config.num_attention_heads, self.phi_config.hidden_size
        fused: OnnxModel = optimize_model(onnx_path, "phi", heads, width, FusionOptions("phi"))
        if self.attn_op_type is AttentionOpType.GroupQueryAttention:
            fused = replace_mha_with_gqa(fused, "attention_mask", self.phi_config.num_key_value_heads or heads)
            fused.prune_graph()
        if self.precision is Precision.FLOAT16:
            fused.convert_float_to_float16(keep_io_types=False)
        elif self.precision is Precision.INT4:
            fused = self._of_four_bits(fused)
        fused.save_model_to_file(onnx_path_opt, use_external_data_format=True)
        logger.info("written: %s", onnx_path_opt)

    def _of_four_bits(self, model: OnnxModel) -> Any:
        options: dict[str, Any] = {"is_symmetric": True, "accuracy_level": self.accuracy_level}
        quantizer = MatMulNBitsQuantizer(model.model, bits=4, block_size=self.block_size, **options)
        quantizer.process()
        return quantizer.model


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    for kind in FOR_CPU:
        parser.add_argument(f"--{kind}", action="store_true", help="write this kind of file")
    for kind in (*FOR_GPU, "use_cuda_graph"):
        parser.add_argument(f"--{kind}", action="store_true", help="needs a GPU, and is refused")
    parser.add_argument("--overwrite", action="store_true", help="export again what is there")
    parser.add_argument("--cache_dir", default="./cache", help="where fetched models are kept")
    parser.add_argument("--device_id", type=int, default=0, help="not used: there is one CPU")
    parser.add_argument("--run_example", action="store_true", help="write a text with each file")
    parser.add_argument("--run_benchmark", action="store_true", help="measure each file")
    parser.add_argument("--skip_export", action="store_true", help="run files that are there")
    parser.add_argument("--output_dir", default="phi2_onnx_models", help="folder to write")
    parser.add_argument("--block_size", type=int, default=16, help="weights that share a scale, with int4")
    parser.add_argument("--int4_accuracy_level", type=int, help="of products, with int4")
    parser.add_argument("--model", default="microsoft/phi-2", help="name or folder of the model")
    arguments = parser.parse_args(argv)
    refused = [kind for kind in (*FOR_GPU, "use_cuda_graph") if getattr(arguments, kind)]
    if refused:
        parser.error(
            f"--{refused[0]} needs a GPU; models run on the CPU here, with {', '.join(f'--{kind}' for kind in FOR_CPU)}"
        )
    return arguments


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Write the files that are wanted, and run them if that is; gives their paths."""
    arguments = parse_arguments(argv)
    setup_logger(False)
    os.makedirs(arguments.output_dir, exist_ok=True)
    paths = {
        kind: os.path.join(arguments.output_dir, f"phi2_decoder_{kind}.onnx") for kind in FOR_CPU if getattr(arguments, kind)
    }
    if not arguments.skip_export:
        raw = os.path.join(arguments.output_dir, "phi2_original.onnx")
        converter = ConvertPhi2ToONNX("cpu", arguments.model, arguments.cache_dir)
        converter.set_quantization_params(arguments.block_size, arguments.int4_accuracy_level)
        if arguments.overwrite or not os.path.exists(raw):
            converter.dynamo_export(raw)
        for kind, path in paths.items():
            converter.init_attn_type_and_precision(AttentionOpType.MultiHeadAttention, FOR_CPU[kind])
            converter.optimize_phi2_onnx(raw, path)
    if arguments.run_example or arguments.run_benchmark:
        for path in paths.values():
            run_phi2(path, False, -1, use_fp16=False, run_benchmark=arguments.run_benchmark, tokenizer_name=arguments.model)
    return list(paths.values())


if __name__ == "__main__":
    main()
