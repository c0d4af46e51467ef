"""Made-up inputs for BERT: word ids, segments and masks, in memory or as test data of the onnx package's form.

`python -m sardonyx.transformers.bert_test_data --model bert.onnx --output_dir data …` writes them.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ValueInfoProto, helper, numpy_helper

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.onnx_model import OnnxModel

Feeds = dict[str, np.ndarray]
EMBED_INPUTS = (0, 1, 7)
"""Where EmbedLayerNormalization reads words, segments and the mask."""


def _dtype(value: ValueInfoProto) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def fake_input_ids_data(input_ids: ValueInfoProto, batch_size: int, sequence_length: int, dictionary_size: int) -> np.ndarray:
    """Random words of a dictionary."""
    return np.random.randint(dictionary_size, size=(batch_size, sequence_length)).astype(_dtype(input_ids))


def fake_segment_ids_data(segment_ids: ValueInfoProto, batch_size: int, sequence_length: int) -> np.ndarray:
    """One segment for all words."""
    return np.zeros((batch_size, sequence_length), _dtype(segment_ids))


def get_random_length(max_sequence_length: int, average_sequence_length: int) -> int:
    """A length from 1 to the largest, such that the average of many is about the one wanted."""
    if not 1 <= average_sequence_length <= max_sequence_length:
        raise AssertionError(f"an average of {average_sequence_length} cannot be within 1 and {max_sequence_length}")
    if 2 * average_sequence_length > max_sequence_length:
        return random.randint(2 * average_sequence_length - max_sequence_length, max_sequence_length)
    return random.randint(1, 2 * average_sequence_length - 1)


def fake_input_mask_data(
    input_mask: ValueInfoProto,
    batch_size: int,
    sequence_length: int,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int = 2,
) -> np.ndarray:
    """Which words count: lengths (mask_type 1), ones and zeros (2), or lengths with their sums (3)."""
    lengths = [
        get_random_length(sequence_length, average_sequence_length) if random_sequence_length else average_sequence_length
        for _ in range(batch_size)
    ]
    if mask_type == 1:
        return np.array(lengths, _dtype(input_mask))
    if mask_type == 2:
        return (np.arange(sequence_length) < np.array(lengths)[:, None]).astype(_dtype(input_mask))
    if mask_type == 3:
        sums = np.concatenate([[0], np.cumsum(lengths)])
        return np.concatenate([lengths, sums, sums]).astype(_dtype(input_mask))
    raise AssertionError(f"mask_type is 1, 2 or 3, not {mask_type}")


def output_test_data(directory: str, inputs: Feeds) -> None:
    """Write inputs as `input_0.pb` and so on."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, array) in enumerate(inputs.items()):
        (folder / f"input_{number}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def fake_test_data(
    batch_size: int,
    sequence_length: int,
    test_cases: int,
    dictionary_size: int,
    verbose: bool,
    random_seed: int,
    input_ids: ValueInfoProto,
    segment_ids: ValueInfoProto | None,
    input_mask: ValueInfoProto | None,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int,
) -> list[Feeds]:
    """Inputs for so many runs."""
    if input_ids is None:
        raise AssertionError("the input for word ids is not known")
    np.random.seed(random_seed)
    random.seed(random_seed)
    cases = []
    for _ in range(test_cases):
        feeds = {input_ids.name: fake_input_ids_data(input_ids, batch_size, sequence_length, dictionary_size)}
        if segment_ids is not None:
            feeds[segment_ids.name] = fake_segment_ids_data(segment_ids, batch_size, sequence_length)
        if input_mask is not None:
            feeds[input_mask.name] = fake_input_mask_data(
                input_mask, batch_size, sequence_length, average_sequence_length, random_sequence_length, mask_type
            )
        cases.append(feeds)
    return cases


def generate_test_data(
    batch_size: int,
    sequence_length: int,
    test_cases: int,
    seed: int,
    verbose: bool,
    input_ids: ValueInfoProto,
    segment_ids: ValueInfoProto | None,
    input_mask: ValueInfoProto | None,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int,
    dictionary_size: int = 10000,
) -> list[Feeds]:
    """`fake_test_data` with the size of the dictionary last."""
    sizes = batch_size, sequence_length, test_cases, dictionary_size
    values = input_ids, segment_ids, input_mask
    return fake_test_data(*sizes, verbose, seed, *values, average_sequence_length, random_sequence_length, mask_type)


def get_graph_input_from_embed_node(onnx_model: OnnxModel, embed_node: Any, input_index: int) -> ValueInfoProto | None:
    """The graph's input that a node reads at a place, also through a Cast."""
    if input_index >= len(embed_node.input):
        return None
    name = embed_node.input[input_index]
    found = onnx_model.find_graph_input(name)
    if found is None:
        parent = onnx_model.get_parent(embed_node, input_index)
        if parent is not None and parent.op_type == "Cast":
            found = onnx_model.find_graph_input(parent.input[0])
    return found


def find_bert_inputs(
    onnx_model: OnnxModel,
    input_ids_name: str | None = None,
    segment_ids_name: str | None = None,
    input_mask_name: str | None = None,
) -> tuple[ValueInfoProto, ValueInfoProto | None, ValueInfoProto | None]:
    """The inputs for word ids, segments and the mask: by the given names, by the embedding, or by what their names hold."""
    inputs = {value.name: value for value in onnx_model.get_graph_inputs_excluding_initializers()}
    if input_ids_name is not None:
        names = [name or "" for name in (input_ids_name, segment_ids_name, input_mask_name)]
        missing = [name for name in names if name and name not in inputs]
        if missing:
            raise ValueError(f"the model has no input {', '.join(missing)}; it has {', '.join(inputs)}")
        return inputs[input_ids_name], inputs.get(names[1]), inputs.get(names[2])
    embeddings = onnx_model.get_nodes_by_op_type("EmbedLayerNormalization")
    if len(embeddings) == 1:
        found = [get_graph_input_from_embed_node(onnx_model, embeddings[0], place) for place in EMBED_INPUTS]
        if found[0] is not None:
            mask = found[2] or next((value for name, value in inputs.items() if "mask" in name.lower()), None)
            return found[0], found[1], mask
    return _by_names(inputs)


def _by_names(inputs: dict[str, ValueInfoProto]) -> tuple[ValueInfoProto, ValueInfoProto | None, ValueInfoProto | None]:
    masks = [value for name, value in inputs.items() if "mask" in name.lower()]
    segments = [value for name, value in inputs.items() if "token" in name.lower() or "segment" in name.lower()]
    words = [value for value in inputs.values() if value not in masks and value not in segments]
    if len(words) != 1 or len(masks) > 1 or len(segments) > 1:
        raise ValueError(f"which of the inputs {', '.join(inputs)} is which is not plain; name them")
    return words[0], segments[0] if segments else None, masks[0] if masks else None


def get_bert_inputs(
    onnx_file: str, input_ids_name: str | None = None, segment_ids_name: str | None = None, input_mask_name: str | None = None
) -> tuple[ValueInfoProto, ValueInfoProto | None, ValueInfoProto | None]:
    """`find_bert_inputs` of a file."""
    model = OnnxModel(onnx.load(onnx_file, load_external_data=False))
    return find_bert_inputs(model, input_ids_name, segment_ids_name, input_mask_name)


def create_and_save_test_data(
    model: str,
    output_dir: str,
    batch_size: int,
    sequence_length: int,
    test_cases: int,
    seed: int,
    verbose: bool,
    input_ids_name: str | None,
    segment_ids_name: str | None,
    input_mask_name: str | None,
    only_input_tensors: bool,
    average_sequence_length: int,
    random_sequence_length: bool,
    mask_type: int,
) -> None:
    """Write inputs for so many runs, each into a folder, with what the model makes of them unless only inputs are wanted."""
    values = get_bert_inputs(model, input_ids_name, segment_ids_name, input_mask_name)
    lengths = average_sequence_length, random_sequence_length, mask_type
    cases = generate_test_data(batch_size, sequence_length, test_cases, seed, verbose, *values, *lengths)
    session = None if only_input_tensors else InferenceSession(model)
    for number, feeds in enumerate(cases):
        folder = Path(output_dir) / f"test_data_set_{number}"
        output_test_data(str(folder), feeds)
        if session is not None:
            for place, result in enumerate(session.run(None, feeds)):
                tensor = numpy_helper.from_array(result, session.get_outputs()[place].name)
                (folder / f"output_{place}.pb").write_bytes(tensor.SerializeToString())


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write made-up inputs of a BERT model.")
    parser.add_argument("--model", required=True, help="path of the model")
    parser.add_argument("--output_dir", default=None, help="folder to write to; by default beside the model")
    for name in ("input_ids", "segment_ids", "input_mask"):
        parser.add_argument(f"--{name}_name", default=None, help=f"the input for {name}, if its name does not tell")
    parser.add_argument("--samples", type=int, default=1, help="for how many runs")
    parser.add_argument("--batch_size", type=int, default=1, help="size of the batch")
    parser.add_argument("--sequence_length", type=int, default=128, help="length of the sequences")
    parser.add_argument("--seed", type=int, default=3, help="for others")
    parser.add_argument("--verbose", action="store_true", help="accepted for compatibility")
    parser.add_argument("--only_input_tensors", action="store_true", help="no outputs")
    parser.add_argument("-a", "--average_sequence_length", type=int, default=-1, help="how many words count; -1 for all")
    parser.add_argument("-r", "--random_sequence_length", action="store_true", help="so many on average")
    parser.add_argument("--mask_type", type=int, default=2, help="1: lengths, 2: ones and zeros, 3: lengths with sums")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    average = options.average_sequence_length if options.average_sequence_length > 0 else options.sequence_length
    folder = options.output_dir or str(Path(options.model).parent / f"batch_{options.batch_size}_seq_{options.sequence_length}")
    create_and_save_test_data(
        options.model,
        folder,
        options.batch_size,
        options.sequence_length,
        options.samples,
        options.seed,
        options.verbose,
        options.input_ids_name,
        options.segment_ids_name,
        options.input_mask_name,
        options.only_input_tensors,
        average,
        options.random_sequence_length,
        options.mask_type,
    )
    print(f"written to {folder}")


if __name__ == "__main__":
    main()
