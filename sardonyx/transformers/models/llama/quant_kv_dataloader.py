"""Texts as inputs of decoders, for calibration: a file of texts, or a dataset that the package datasets knows."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.quantization import CalibrationDataReader
from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.models.llama.llama_inputs import get_position_ids
from sardonyx.transformers.onnx_exporter import transformers_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

Batch = tuple[tuple[Any, Any, Any], Any]
FILLER = 1
"""The word behind the end of a text; the mask hides it."""


class QuantKVDataLoader:
    """Gives inputs and the place of the last word, text by text.

    With the file of the first step it gives inputs of a later one: the last word, and keys and values of those before.
    """

    def __init__(self, args: argparse.Namespace, onnx_model_path: str = ""):
        self.batch_size = 1
        self.pad_max = args.pad_max
        tokenizer = transformers_package().AutoTokenizer.from_pretrained(args.original_model_name)
        torch = loaded_torch()
        words = [{"input_ids": torch.tensor(tokenizer(text)["input_ids"])} for text in texts_of(args.smooth_quant_dataset)]
        loader = torch.utils.data.DataLoader
        self.dataloader = loader(words, batch_size=self.batch_size, shuffle=False, collate_fn=self.collate_batch)
        self.decoder_model = None
        if onnx_model_path:
            self.decoder_model = create_onnxruntime_session(onnx_model_path, args.execution_provider != "cpu")
            if self.decoder_model is None:
                raise RuntimeError(f"{onnx_model_path} cannot be opened")

    def collate_batch(self, batch: Sequence[dict[str, Any]]) -> Batch:
        """Words, masks and places of texts, cut or filled up to one length, and the place of the last word of each."""
        torch = loaded_torch()
        rows, last = [], []
        for text in batch:
            words = text["input_ids"][: self.pad_max]
            mask = torch.ones(len(words), dtype=torch.int64)
            places = get_position_ids(mask, use_past_kv=False)
            missing = self.pad_max - len(words)
            fillers = (words, FILLER), (mask, 0), (places, 0)
            rows.append([torch.nn.functional.pad(row, (0, missing), value=filler) for row, filler in fillers])
            last.append(len(words) - 1)
        words, mask, places = (torch.stack(column) for column in zip(*rows, strict=True))
        return (words, mask, places), torch.tensor(last)

    def __iter__(self) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        names = "input_ids", "attention_mask", "position_ids"
        for tensors, labels in self.dataloader:
            inputs = {name: tensor[:, :-1].numpy() for name, tensor in zip(names, tensors, strict=True)}
            if self.decoder_model is not None:
                inputs = self._later_step(inputs, tensors[0][:, -1:].numpy())
            yield inputs, labels.numpy()

    def _later_step(self, inputs: dict[str, np.ndarray], words: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs of these words behind those that the first step takes."""
        assert self.decoder_model is not None
        names = [value.name for value in self.decoder_model.get_outputs()]
        outputs = dict(zip(names, self.decoder_model.run(None, inputs), strict=True))
        caches = {name.replace("present", "past_key_values"): outputs[name] for name in names if name.startswith("present")}
        batch, past = inputs["input_ids"].shape
        mask = np.ones((batch, past + 1), np.int64)
        return {"input_ids": words, "attention_mask": mask, "position_ids": np.full((batch, 1), past), **caches}


class Batches(CalibrationDataReader):
    """Inputs for calibration, which may be read again."""

    def __init__(self, batches: Sequence[dict[str, np.ndarray]]):
        self.batches = batches
        self.rewind()

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.rest, None)

    def rewind(self) -> None:
        """Begin anew."""
        self.rest = iter(self.batches)


def texts_of(dataset: str) -> list[str]:
    """The texts of a file, of a JSON object with "text" or of a text in each line; or those of a dataset that can be fetched."""
    path = Path(dataset)
    if path.is_file():
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [json.loads(line)["text"] for line in lines] if path.suffix in (".json", ".jsonl") else lines
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise ImportError(
            f"{dataset!r} is no file, and datasets are fetched by the package datasets: pip install datasets"
        ) from error
    return list(datasets.load_dataset(dataset, split="train")["text"])
