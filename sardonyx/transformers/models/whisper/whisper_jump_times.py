"""When the words of a text begin in its sound, told by cross attention: a module, and the same as a file.

The scores of chosen heads become one table of words and frames, and dynamic time warping finds the way through it. As in Whisper itself,
frames behind the end of the sound are left out; the original leaves out words there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sardonyx.providers.cpu.contrib.distance import dynamic_time_warping
from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.conversion import OPSET
from sardonyx.transformers.models.whisper.whisper_inputs import (
    OPEN_SIZES,
    convert_inputs_for_ort,
    get_sample_jump_times_inputs,
)
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

FRAMES_PER_SECOND = 50.0
FILTER_WIDTH = 7
TOLERANCE = 1 / FRAMES_PER_SECOND
"""How far times of a file may be from those of the module: a frame, where two ways through a table are as good."""


def index_QKs(alignment_heads: Any, QKs: Sequence[Any]) -> Any:  # noqa: N802, N803 - the original's names
    """Scores of the heads that are given as pairs of layer and head: [batch, pairs, words, frames]."""
    return loaded_torch().stack([QKs[layer][:, head] for layer, head in alignment_heads.tolist()], dim=1)


def jump_timings(text_indices: Any, time_indices: Any) -> Any:
    """The seconds at which a way through a table comes to the next word."""
    torch = loaded_torch()
    is_next = torch.cat([torch.ones(1, dtype=torch.bool), text_indices[1:] != text_indices[:-1]])
    return time_indices[is_next].float() / FRAMES_PER_SECOND


def padded_jump_from_dtw(matrix_2d: Any, max_length: Any) -> Any:
    """The seconds of one table of costs, filled up with -1."""
    torch = loaded_torch()
    words, frames = torch.from_numpy(dynamic_time_warping(matrix_2d.float().cpu().numpy()))
    times = jump_timings(words, frames)
    return torch.nn.functional.pad(times, (0, int(max_length) - len(times)), value=-1.0)


def batch_jump_times(matrix: Any, max_decoded_length: Any) -> Any:
    """The seconds of each table of costs."""
    return loaded_torch().stack([padded_jump_from_dtw(table, max_decoded_length) for table in matrix])


class WhisperJumpTimes(TorchModule):
    """Scores of cross attention to times of words."""

    filter_width = FILTER_WIDTH
    qk_scale = 1.0

    def __init__(self, config: Any, device: Any, cache_dir: str | os.PathLike[str] = ""):
        super().__init__()
        self.config, self.device, self.cache_dir = config, device, cache_dir

    def median_filter(self, weights: Any) -> Any:
        """The middle one of each frame and its neighbours; the ends are mirrored."""
        half = self.filter_width // 2
        wide = loaded_torch().nn.functional.pad(weights, (half, half, 0, 0), mode="reflect")
        return wide.unfold(-1, self.filter_width, 1).median(dim=-1).values

    def forward(self, alignment_heads: Any, sot_sequence_length: Any, segment_length: Any, QKs: Sequence[Any]) -> Any:  # noqa: N803
        """Times of all words behind the first ones, but for the last; `segment_length` is in hundredths of a second."""
        weights = index_QKs(alignment_heads, QKs)[..., : int(segment_length) // 2].float()
        weights = (weights * self.qk_scale).softmax(dim=-1)
        spread, mean = loaded_torch().std_mean(weights, dim=-2, keepdim=True, correction=0)
        costs = -self.median_filter((weights - mean) / spread).mean(dim=1)
        costs = costs[:, int(sot_sequence_length) : -1]
        return batch_jump_times(costs, costs.shape[1])

    def input_names(self) -> list[str]:
        """Names of the inputs of the file."""
        scores = [f"cross_qk_{layer}" for layer in range(self.config.decoder_layers)]
        return ["alignment_heads", "sot_sequence_length", "segment_length", *scores]

    def output_names(self) -> list[str]:
        """Names of the outputs of the file."""
        return ["jump_times"]

    def inputs(self, use_fp16_inputs: bool, use_int32_inputs: bool, return_dict: bool = False) -> Any:
        """Random tensors for `forward`, by their names or in their order."""
        heads, words, start = 6, 8, 3
        length = 2 * self.config.max_source_positions * 8 // 9
        samples = get_sample_jump_times_inputs(
            self.config, self.device, 2, words, heads, start, length, use_fp16_inputs, use_int32_inputs
        )
        return samples if return_dict else tuple(samples.values())

    def export_onnx(
        self,
        onnx_model_path: str,
        provider: str,
        verbose: bool = True,
        use_external_data_format: bool = False,
        use_fp16_inputs: bool = False,
        use_int32_inputs: bool = True,
    ) -> None:
        """Write the module, and compare the file with it."""
        kinds = TensorProto.FLOAT16 if use_fp16_inputs else TensorProto.FLOAT, use_int32_inputs
        OnnxModel.save(jump_times_model(self.config, *kinds), onnx_model_path, use_external_data_format)
        self.verify_onnx(onnx_model_path, provider, use_fp16_inputs, use_int32_inputs)

    def verify_onnx(self, onnx_model_path: str, provider: str, use_fp16_inputs: bool, use_int32_inputs: bool) -> float:
        """By how many seconds the times of a file are from those of the module at most."""
        samples = self.inputs(use_fp16_inputs, use_int32_inputs, return_dict=True)
        session = create_onnxruntime_session(onnx_model_path, use_gpu=False, provider=provider)
        if session is None:
            raise RuntimeError(f"{onnx_model_path} cannot be opened")
        (times,) = session.run(None, convert_inputs_for_ort(samples, session))
        difference = float(np.abs(times - self.forward(**samples).numpy()).max(initial=0))
        level = logging.WARNING if difference > TOLERANCE else logging.INFO
        logger.log(level, "%s: times differ by up to %g seconds from PyTorch's", onnx_model_path, difference)
        return difference


# --- the file

LENGTH_TYPE = TensorProto.INT64
"""The type of the two sizes, as sample inputs have it."""

TEXT = """
main (alignment_heads, sot_sequence_length, segment_length) => (jump_times)
{
    heads = Cast <to = 7> (alignment_heads)
    by_head = Transpose <perm = [0, 2, 1, 3, 4]> (all_scores)
    chosen = GatherND (by_head, heads)
    by_batch = Transpose <perm = [1, 0, 2, 3]> (chosen)
    frames = Div (segment_length, two)
    heard = Slice (by_batch, zero, frames, last_axis)
    scores = Cast <to = 1> (heard)
    weights = Softmax <axis = -1> (scores)
    mean = ReduceMean <axes = [-2], keepdims = 1> (weights)
    centred = Sub (weights, mean)
    squares = Mul (centred, centred)
    variance = ReduceMean <axes = [-2], keepdims = 1> (squares)
    spread = Sqrt (variance)
    normal = Div (centred, spread)
    wide = Pad <mode = "reflect"> (normal, margins)
    windows = com.microsoft.UnfoldTensor <dim = -1, size = 7> (wide)
    largest, places = TopK <axis = -1> (windows, middle)
    median_column = Slice (largest, minus_one, largest_int, last_axis)
    median = Squeeze (median_column, last_axis)
    gain = ReduceMean <axes = [1], keepdims = 0> (median)
    cost = Neg (gain)
    costs = Slice (cost, sot_sequence_length, minus_one, word_axis)
    jump_times = Scan <num_scan_inputs = 1, body = times_of_one (float[words, frames] table) => (float[words] times)
    {
        way = com.microsoft.DynamicTimeWarping (table)
        row, column = Split <axis = 0> (way)
        row_indices = Squeeze (row, first_axis)
        column_indices = Squeeze (column, first_axis)
        later = Slice (row_indices, one, largest_int, first_axis)
        earlier = Slice (row_indices, zero, minus_one, first_axis)
        is_same = Equal (later, earlier)
        is_next = Not (is_same)
        starts = Concat <axis = 0> (true, is_next)
        frames_of_words = Compress <axis = 0> (column_indices, starts)
        numbers = Cast <to = 1> (frames_of_words)
        times = Div (numbers, frames_per_second)
    }> (costs)
}
"""
"""The graph behind the scores of all layers, which are `all_scores`: [layer, batch, head, word, frame]."""

CONSTANTS = {
    "two": np.array([2]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "minus_one": np.array([-1]),
    "largest_int": np.array([2**62]),
    "first_axis": np.array([0]),
    "word_axis": np.array([1]),
    "last_axis": np.array([-1]),
    "margins": np.array([0, 0, 0, FILTER_WIDTH // 2] * 2),
    "middle": np.array([FILTER_WIDTH // 2 + 1]),
    "true": np.array([True]),
    "frames_per_second": np.array(FRAMES_PER_SECOND, np.float32),
}


def jump_times_model(config: Any, score_type: int = TensorProto.FLOAT, use_int32_inputs: bool = True) -> ModelProto:
    """The module as a model."""
    graph = onnx.parser.parse_graph(TEXT)
    scores = [f"cross_qk_{layer}" for layer in range(config.decoder_layers)]
    stacked = [helper.make_node("Unsqueeze", [name, "first_axis"], [f"{name}_of_layer"]) for name in scores]
    stacked.append(helper.make_node("Concat", [node.output[0] for node in stacked], ["all_scores"], axis=0))
    nodes = [*stacked, *graph.node]
    pairs = TensorProto.INT32 if use_int32_inputs else TensorProto.INT64
    shape = ["batch_size", config.decoder_attention_heads, OPEN_SIZES["*cross_qk*"][2], config.max_source_positions]
    inputs = {
        "alignment_heads": (pairs, ["num_alignment_heads", 2]),
        "sot_sequence_length": (LENGTH_TYPE, [1]),
        "segment_length": (LENGTH_TYPE, [1]),
        **dict.fromkeys(scores, (score_type, shape)),
    }
    whole = helper.make_graph(
        nodes,
        "jump_times",
        [helper.make_tensor_value_info(name, kind, sizes) for name, (kind, sizes) in inputs.items()],
        [helper.make_tensor_value_info("jump_times", TensorProto.FLOAT, ["batch_size", OPEN_SIZES["*jump_times*"][1]])],
        [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(whole, opset_imports=opsets, ir_version=8)
