"""GPT-2 word by word: what PyTorch and sessions choose next, and how often they agree."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.bert_test_data import output_test_data
from sardonyx.transformers.models.gpt2.gpt2_helper import Gpt2Helper, Gpt2Inputs
from sardonyx.transformers.parity import largest_difference, top_words
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)
QUANTIZED_OPS = ("MatMulInteger", "DynamicQuantizeMatMul", "QAttention", "QLinearMatMul", "DequantizeLinear")


class Gpt2Metric:
    """How often a treatment chooses other words than a baseline, how far its logits are, and how long it takes."""

    def __init__(self, treatment_name: str, baseline_name: str = "Torch", top_k: int = 20):
        assert top_k > 1
        self.treatment, self.baseline = treatment_name, baseline_name
        self.name = f"{treatment_name} vs {baseline_name}"
        self.top_k = top_k
        self.top_1_error = self.top_k_error = 0
        self.total_samples = 0
        self.max_logits_diff = 0.0
        """With a past."""
        self.max_logits_diff_no_past = 0.0
        self.seq_len_latency: dict[int, list[float]] = {}
        self.batch_top1_error = self.batch_topk_error = np.zeros((0, 1), bool)

    def print(self) -> None:
        """Show what was counted."""
        if self.baseline != self.treatment:
            print(f"{self.treatment} beside {self.baseline}: {self.total_samples} rows")
            for count, errors in ((1, self.top_1_error), (self.top_k, self.top_k_error)):
                share = errors / self.total_samples if self.total_samples else 0.0
                print(f"\tother top {count} words in {errors} of them ({share:.2%})")
            print(
                f"\tlargest difference of logits {self.max_logits_diff:.6f}, without a past {self.max_logits_diff_no_past:.6f}"
            )
        else:
            print(f"{self.treatment}, the baseline:")
        for power, times in sorted(self.seq_len_latency.items()):
            words = f"{2**power} to {2 ** (power + 1) - 1} words" if power >= 0 else "no words"
            print(f"\tafter {words}: {fmean(times) * 1000:.2f} ms")
        total = [time for times in self.seq_len_latency.values() for time in times]
        if total:
            print(f"\taverage: {fmean(total) * 1000:.2f} ms")

    def diff_logits(self, baseline_logits: Any, treatment_logits: Any, is_empty_past: bool) -> float:
        """The largest difference of logits, which is kept if it is the largest so far."""
        difference = largest_difference(_array(baseline_logits), _array(treatment_logits))
        if is_empty_past:
            self.max_logits_diff_no_past = max(self.max_logits_diff_no_past, difference)
        else:
            self.max_logits_diff = max(self.max_logits_diff, difference)
        return difference

    def start_batch(self, batch_size: int) -> None:
        """Begin to count a batch; each of its rows counts once, with the first word that differs."""
        self.total_samples += batch_size
        self.batch_top1_error = np.zeros((batch_size, 1), bool)
        self.batch_topk_error = np.zeros((batch_size, 1), bool)

    def eval_batch(self, baseline: Gpt2Tester, treatment: Gpt2Tester, past_seq_len: int, verbose: bool = True) -> None:
        """Compare what two testers chose last."""
        difference = self.diff_logits(baseline.logits, treatment.logits, past_seq_len == 0)
        if verbose:
            logger.info("%s: logits differ by up to %g", self.name, difference)
        self.batch_top1_error |= self._other(baseline.top_1_tokens, treatment.top_1_tokens, 1, verbose)
        self.batch_topk_error |= self._other(baseline.top_k_tokens, treatment.top_k_tokens, self.top_k, verbose)

    def _other(self, baseline: Any, treatment: Any, count: int, verbose: bool) -> np.ndarray:
        """Which rows differ."""
        is_other = (_array(baseline) != _array(treatment)).any(axis=1, keepdims=True)
        if verbose and is_other.any():
            logger.info("%s: other top %d words in rows %s", self.name, count, np.flatnonzero(is_other).tolist())
        return np.asarray(is_other)

    def end_batch(self) -> None:
        """Count the rows that differed."""
        self.top_1_error += int(self.batch_top1_error.sum())
        self.top_k_error += int(self.batch_topk_error.sum())

    def add_latency(self, past_seq_len: int, latency: float) -> None:
        """Note a time in seconds; lengths count by powers of two."""
        self.seq_len_latency.setdefault(int(past_seq_len).bit_length() - 1, []).append(latency)


class Gpt2Tester:
    """The state of a generation: the words last chosen, and keys and values of all before."""

    def __init__(
        self,
        input_ids: Any,
        position_ids: Any,
        attention_mask: Any,
        num_attention_heads: int,
        hidden_size: int,
        num_layer: int,
        device: Any,
        is_fp16: bool = False,
        top_k: int = 20,
        top_k_required_order: bool = False,
    ):
        torch = loaded_torch()
        self.batch_size = input_ids.shape[0]
        self.input_length = input_ids.shape[1]
        self.n_layer = num_layer
        self.input_ids, self.position_ids, self.attention_mask = input_ids, position_ids, attention_mask
        self.has_position_ids, self.has_attention_mask = position_ids is not None, attention_mask is not None
        shape = (2, self.batch_size, num_attention_heads, 0, hidden_size // num_attention_heads)
        floats = torch.float16 if is_fp16 else torch.float32
        self.past = [torch.empty(shape, dtype=floats, device=device) for _ in range(num_layer)]
        self.logits: Any = None
        self.top_1_tokens: Any = None
        self.top_k_tokens: Any = None
        self.top_k, self.top_k_required_order = top_k, top_k_required_order

    def get_inputs(self) -> Gpt2Inputs:
        """The inputs of the next step."""
        return Gpt2Inputs(self.input_ids, self.position_ids, self.attention_mask, self.past)

    def save_test_data(self, session: Any, output: Sequence[Any], save_test_data_dir: str, test_case_id: int) -> None:
        """Write inputs and outputs of a step as a test case of ONNX, unless its folder is there."""
        folder = Path(save_test_data_dir, f"test_data_set_{test_case_id}")
        if folder.exists():
            logger.warning("%s is there and is not written again", folder)
            return
        values = {"input_ids": self.input_ids, "position_ids": self.position_ids, "attention_mask": self.attention_mask}
        values |= {f"past_{layer}": tensor for layer, tensor in enumerate(self.past)}
        output_test_data(str(folder), {name: _array(value) for name, value in values.items() if value is not None})
        for number, (value, array) in enumerate(zip(session.get_outputs(), output, strict=True)):
            message = numpy_helper.from_array(np.ascontiguousarray(_array(array)), value.name)
            (folder / f"output_{number}.pb").write_bytes(message.SerializeToString())

    def update(self, output: Any, step: int, device: Any) -> None:
        """Take the outputs of a step: the likeliest word of each row comes next."""
        torch = loaded_torch()
        self.logits = _array(output[0])
        self.top_1_tokens = torch.from_numpy(self.predict_next_token(self.logits))
        self.top_k_tokens = torch.from_numpy(self.predict_next_token(self.logits, self.top_k, self.top_k_required_order))
        self.input_ids = self.top_1_tokens.to(self.input_ids.dtype).to(device)
        if self.has_position_ids:
            self.position_ids = self.position_ids[:, -1:] + 1
        if self.has_attention_mask:
            ones = torch.ones((self.batch_size, 1), dtype=self.attention_mask.dtype, device=device)
            self.attention_mask = torch.cat([self.attention_mask, ones], 1)
        present = output[1] if isinstance(output[1], (tuple, list)) else output[1 : self.n_layer + 1]
        self.past = [torch.as_tensor(tensor).to(device) for tensor in present]

    def diff(self, baseline: Gpt2Tester) -> list[str]:
        """What differs from another tester: words, places, masks, and logits or keys by more than 0.1; it is printed, too."""
        names = ("input_ids", "position_ids", "attention_mask")
        pairs = [(name, getattr(self, name), getattr(baseline, name)) for name in names]
        differing = [name for name, mine, other in pairs if mine is not None and (_array(mine) != _array(other)).any()]
        floats = [("logits", self.logits, baseline.logits)] if self.logits is not None else []
        floats += [(f"past_{layer}", *pair) for layer, pair in enumerate(zip(self.past, baseline.past, strict=True))]
        distances = {name: largest_difference(_array(mine), _array(other)) for name, mine, other in floats}
        differing += [f"{name} by {distance:g}" for name, distance in distances.items() if not distance <= 0.1]
        print(f"differ: {', '.join(differing) or 'nothing'}")
        return differing

    @staticmethod
    def predict_next_token(logits: Any, top_k: int = 1, required_order: bool = False) -> np.ndarray:
        """The likeliest next words of each row, by their numbers unless they are wanted in order."""
        return top_words(_array(logits), top_k, required_order)

    @staticmethod
    def diff_present(onnx_output: Sequence[Any], onnx_io_output: Sequence[Any], n_layer: int) -> list[float]:
        """How far keys and values of each layer are apart in the outputs of two sessions; it is printed, too."""
        pairs = zip(onnx_output[1 : n_layer + 1], onnx_io_output[1 : n_layer + 1], strict=True)
        differences = [largest_difference(_array(first), _array(second)) for first, second in pairs]
        print(f"present differs by up to {max(differences, default=0.0):g}")
        return differences

    @staticmethod
    def is_quantized_onnx_model(onnx_model_path: str) -> bool:
        """Whether a file has products of 8-bit weights."""
        nodes = onnx.load(onnx_model_path, load_external_data=False).graph.node
        return any(node.op_type in QUANTIZED_OPS for node in nodes)

    @staticmethod
    def test_generation(
        session: Any,
        model: Any,
        device: Any,
        test_inputs: Sequence[Mapping[str, Any]],
        precision: Precision = Precision.FLOAT32,
        model_class: str = "GPT2LMHeadModel",
        top_k: int = 20,
        top_k_no_order: bool = True,
        max_steps: int = 24,
        max_inputs: int = 0,
        verbose: bool = False,
        save_test_data: int = 0,
        save_test_data_dir: str = ".",
    ) -> list[Gpt2Metric]:
        """Let PyTorch, a session, and it with bound memory generate; gives and prints how they compare with PyTorch.

        All get the words that PyTorch chose, so that one other word is not an error of all that follow.
        """
        if model_class == "Gpt2LMHeadModel":  # the original's default, which is none of its classes
            model_class = "GPT2LMHeadModel"
        top_k = min(top_k, model.config.vocab_size)
        names = ["Torch", f"session {precision}", f"session {precision} with bound memory"]
        metrics = [Gpt2Metric(name, top_k=top_k) for name in names]
        saved = 0
        for given in test_inputs[: max_inputs or None]:
            generation = _Generation(session, model, device, model_class, given, top_k, not top_k_no_order)
            for metric in metrics:
                metric.start_batch(generation.batch_size)
            for step in range(min(max_steps, generation.room())):
                generation.step(metrics)
                if saved < save_test_data:
                    generation.testers[1].save_test_data(session, generation.outputs[1], save_test_data_dir, saved)
                    saved += 1
                generation.update(step)
                for metric, tester in zip(metrics[1:], generation.testers[1:], strict=True):
                    metric.eval_batch(generation.testers[0], tester, generation.past, verbose)
                generation.agree()
            for metric in metrics:
                metric.end_batch()
        for metric in metrics:
            metric.print()
        return metrics


class _Generation:
    """Generations of one batch by PyTorch, by a session, and by it with bound memory."""

    def __init__(
        self, session: Any, model: Any, device: Any, model_class: str, given: Mapping[str, Any], top_k: int, in_order: bool
    ):
        self.session, self.model, self.device, self.model_class = session, model, device, model_class
        config = model.config
        types = [value.type for value in (*session.get_inputs(), *session.get_outputs()) if "float" in value.type]
        self.is_half = types[0] == "tensor(float16)"
        self.is_bound = len(set(types)) == 1
        words = given["input_ids"], given.get("position_ids"), given.get("attention_mask")
        sizes = config.num_attention_heads, config.hidden_size, config.n_layer, device
        kinds = False, self.is_half, self.is_half
        self.testers = [Gpt2Tester(*words, *sizes, is_half, top_k, in_order) for is_half in kinds]
        self.batch_size = self.testers[0].batch_size
        self.outputs: list[Any] = []
        self.past = 0

    def room(self) -> int:
        """How many steps the model has places for."""
        return int(self.model.config.n_positions) - self.testers[0].input_length + 1

    def step(self, metrics: Sequence[Gpt2Metric]) -> None:
        """Run all with their inputs."""
        self.past = self.testers[0].past[0].shape[3]
        runs = self._torch, self._session, self._bound
        self.outputs = []
        for run, tester, metric in zip(runs, self.testers, metrics, strict=True):
            start = perf_counter()
            self.outputs.append(run(tester.get_inputs()))
            metric.add_latency(self.past, perf_counter() - start)

    def _torch(self, inputs: Gpt2Inputs) -> Any:
        return Gpt2Helper.pytorch_inference(self.model, inputs)

    def _session(self, inputs: Gpt2Inputs) -> Any:
        return Gpt2Helper.onnxruntime_inference(self.session, inputs)

    def _bound(self, inputs: Gpt2Inputs) -> Any:
        if not self.is_bound:  # buffers have one type
            return self._session(inputs)
        sizes = self.batch_size, self.past, inputs.input_ids.shape[1]
        shapes = Gpt2Helper.get_output_shapes(*sizes, self.model.config, self.model_class)
        buffers = Gpt2Helper.get_output_buffers(shapes, self.device, self.is_half)
        return Gpt2Helper.onnxruntime_inference_with_binded_io(self.session, inputs, buffers, shapes)

    def update(self, step: int) -> None:
        for tester, output in zip(self.testers, self.outputs, strict=True):
            tester.update(output, step, self.device)

    def agree(self) -> None:
        """Let all go on with the words of PyTorch."""
        for tester in self.testers[1:]:
            tester.input_ids = self.testers[0].input_ids


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.cpu().detach() if hasattr(value, "cpu") else value)
