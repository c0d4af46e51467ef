"""Texts that a file of Phi-2 writes, and how long each token takes. `models.phi2.convert_to_onnx` runs this."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.api.iobinding import IOBinding
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import run_times
from sardonyx.transformers.io_binding_helper import place_of
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.step_times import StepTimes
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

PROMPT = 'def primes_below(n):\n    """All primes that are less than n."""\n'
LONGEST_EXAMPLE = 210
MEASURED_TOKENS = 32


def cuda_memcpy(dst: Any, src: Any) -> None:
    """Copy the numbers of a tensor into the memory of another of the same size and type, wherever they lie."""
    if dst.dtype != src.dtype or dst.numel() != src.numel():
        raise ValueError(f"{list(src.shape)} of {src.dtype} do not fit into {list(dst.shape)} of {dst.dtype}")
    dst.copy_(src.reshape(dst.shape))


class ORTGenerator:
    """Writes tokens, each time the likeliest one."""

    def __init__(self, decoder_path: str, tokenizer_name: str = "microsoft/phi-2"):
        self.onnx_decoder_path, self.tokenizer_name = decoder_path, tokenizer_name
        self.max_sequence_length = 2048

    def create_session(
        self,
        device_id: int,
        use_fp16: bool = True,
        use_buffer_share: bool = True,
        packed_kv: bool = False,
        use_step: bool = False,
        use_cuda_graph: bool = False,
    ) -> None:
        """Open the file. A negative device is the CPU, and the only one."""
        if device_id >= 0 or use_cuda_graph:
            raise ValueError(f"models run on the CPU here: device_id is -1, not {device_id}, and use_cuda_graph False")
        self.use_fp16, self.use_buffer_share = use_fp16, use_buffer_share
        self.packed_kv, self.use_step = packed_kv, use_step
        self.sess = InferenceSession(self.onnx_decoder_path, providers=["CPUExecutionProvider"])
        self.tokenizer = transformers_package().AutoTokenizer.from_pretrained(self.tokenizer_name, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        caches = [value for value in self.sess.get_inputs() if value.name.startswith("past")]
        self.num_layers = len(caches) // (1 if packed_kv else 2)
        self.num_heads, _, self.head_size = caches[0].shape[-3:]

    def _cache(self, batch: int, length: int) -> Any:
        torch = loaded_torch()
        shape = (2,) * self.packed_kv + (batch, self.num_heads, length, self.head_size)
        return torch.zeros(shape, dtype=torch.float16 if self.use_fp16 else torch.float32)

    def _cache_names(self, time: str) -> list[str]:
        kinds = ("",) if self.packed_kv else ("key_", "value_")
        return [f"{time}_{kind}{layer}" for layer in range(self.num_layers) for kind in kinds]

    def get_initial_inputs_and_outputs(self, encodings_dict: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs of prompts, and memory for the outputs of the first step."""
        torch = loaded_torch()
        words, mask = (torch.tensor(encodings_dict[name], dtype=torch.int32) for name in ("input_ids", "attention_mask"))
        inputs = {"input_ids": words, "attention_mask": mask}
        if self.use_step:
            inputs["step"] = torch.zeros(1, dtype=torch.int64)
        past = self.max_sequence_length if self.use_buffer_share else 0
        inputs |= {name: self._cache(len(words), past) for name in self._cache_names("past")}
        batch, length = words.shape
        return inputs, self._outputs(batch, length, length)

    def _outputs(self, batch: int, length: int, total: int) -> dict[str, Any]:
        """Memory for logits of so many words, and keys and values of all."""
        vocabulary = self.sess.get_outputs()[0].shape[-1]
        logits = self._cache(1, 0).new_zeros(batch, length, vocabulary)
        names = [] if self.use_buffer_share else self._cache_names("present")
        return {"logits": logits} | {name: self._cache(batch, total) for name in names}

    def apply_io_binding(self, model: InferenceSession, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> IOBinding:
        """A binding of tensors; keys and values go back into the memory of the inputs where that is shared."""
        binding = model.io_binding()
        for name, tensor in inputs.items():
            binding.bind_input(name, *place_of(tensor))
        for name in (value.name for value in model.get_outputs()):
            is_shared = self.use_buffer_share and "present" in name
            tensor = inputs[name.replace("present", "past")] if is_shared else outputs[name]
            binding.bind_output(name, *place_of(tensor))
        return binding

    def generate_impl(
        self, encodings_dict: Mapping[str, Any], max_length: int, cuda_graph_annotation: int = -1, benchmark: bool = False
    ) -> list[str] | None:
        """Texts with so many tokens at most; with `benchmark` what each step takes is printed in their place."""
        torch = loaded_torch()
        inputs, outputs = self.get_initial_inputs_and_outputs(encodings_dict)
        tokens = inputs["input_ids"]
        batch, length = tokens.shape
        is_over = torch.zeros(batch, 1, dtype=torch.bool)
        seconds: list[float] = []
        while tokens.shape[1] < max_length and not (is_over.all() and not benchmark):
            binding = self.apply_io_binding(self.sess, inputs, outputs)
            seconds += run_times(lambda binding=binding: self.sess.run_with_iobinding(binding), 1)  # type: ignore[misc]
            chosen = outputs["logits"][:, -1:].argmax(-1).to(torch.int32).masked_fill(is_over, self.tokenizer.eos_token_id)
            is_over |= chosen == self.tokenizer.eos_token_id
            tokens = torch.hstack((tokens, chosen))
            inputs, outputs = self._next(inputs, outputs, chosen)
        if benchmark:
            later = StepTimes(seconds[1:] or seconds, batch)
            print(f"{batch} texts of {length} tokens: prompt {seconds[0] * 1000:.3f} ms, token {later.latency * 1000:.3f} ms")
            return None
        return list(self.tokenizer.batch_decode(tokens, skip_special_tokens=True))

    def _next(self, inputs: dict[str, Any], outputs: dict[str, Any], chosen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Inputs of the next step, and memory for its outputs."""
        torch = loaded_torch()
        mask = torch.hstack((inputs["attention_mask"], torch.ones_like(chosen)))
        later = {**inputs, "input_ids": chosen.contiguous(), "attention_mask": mask}
        batch, total = mask.shape
        if self.use_step:
            later["step"] = torch.tensor([total - 1])
        if not self.use_buffer_share:
            later |= {name: outputs[name.replace("past", "present")] for name in self._cache_names("past")}
        return later, self._outputs(batch, 1, total)

    def generate(self, prompt: Sequence[str], max_length: int, cuda_graph_annotation: int = -1) -> list[str] | None:
        """Prompts with what the model writes behind them."""
        return self.generate_impl(self.tokenizer(list(prompt), padding=True), max_length, cuda_graph_annotation)

    def generate_benchmark(self, prompt_shape: tuple[int, int], token_num: int, cuda_graph_annotation: int = -1) -> None:
        """Print how long a prompt of random tokens takes, and each of so many tokens behind it."""
        vocabulary: Any = self.sess.get_outputs()[0].shape[-1]
        words = np.random.default_rng(0).integers(0, vocabulary, prompt_shape)
        encodings = {"input_ids": words.tolist(), "attention_mask": np.ones_like(words).tolist()}
        for is_measured in (False, True):
            self.generate_impl(encodings, prompt_shape[1] + token_num, cuda_graph_annotation, is_measured)


def run_phi2(
    onnx_model_path: str,
    use_buffer_share: bool,
    device_id: int,
    packed_kv: bool = False,
    use_fp16: bool = True,
    use_step: bool = False,
    use_cuda_graph: bool = False,
    run_benchmark: bool = False,
    tokenizer_name: str = "microsoft/phi-2",
) -> None:
    """Print a text that a file writes, or measure it. A negative device is the CPU."""
    generator = ORTGenerator(onnx_model_path, tokenizer_name)
    generator.create_session(device_id, use_fp16, use_buffer_share, packed_kv, use_step, use_cuda_graph)
    if not run_benchmark:
        for text in generator.generate([PROMPT], LONGEST_EXAMPLE) or []:
            print(text)
        return
    for batch in (1, 2, 4, 8):
        for length in (16, 512):
            generator.generate_benchmark((batch, length), MEASURED_TOKENS)
