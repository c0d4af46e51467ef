"""Whether an optimized BERT gives the results of the original: `python -m sardonyx.transformers.compare_bert_results …`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.bert_test_data import generate_test_data, get_bert_inputs, output_test_data

Results = list[list[np.ndarray]]


def run_model(
    model_path: str, all_inputs: Sequence[Mapping[str, np.ndarray]], use_gpu: bool, disable_optimization: bool
) -> tuple[Results, list[float], list[str]]:
    """(results of each input, times of runs in seconds, names of outputs)."""
    session: InferenceSession | None = create_onnxruntime_session(
        model_path, use_gpu, enable_all_optimization=not disable_optimization
    )
    if session is None:
        raise RuntimeError(f"{model_path} cannot be run; the log says why")
    results = [session.run(None, feeds) for feeds in all_inputs]
    return results, [], [value.name for value in session.get_outputs()]


def compare(
    baseline_results: Results, treatment_results: Results, verbose: bool, rtol: float = 1e-1, atol: float = 1e-3
) -> tuple[float, bool]:
    """(largest difference, whether all results agree within the tolerances); a summary is printed."""
    largest, share, failed = 0.0, 0.0, set()
    for number, (expected, got) in enumerate(zip(baseline_results, treatment_results, strict=True)):
        for mine, theirs in zip(got, expected, strict=True):
            differences = np.abs(mine - theirs)
            largest = max(largest, float(differences.max(initial=0)))
            share = max(share, float((differences > atol).mean()) if differences.size else 0.0)
            if not np.allclose(theirs, mine, rtol=rtol, atol=atol):
                failed.add(number)
                if verbose:
                    print(f"case {number}: largest difference {differences.max()}")
    count = len(baseline_results)
    print(f"{count - len(failed)} of {count} cases agree within rtol={rtol}, atol={atol}")
    print(f"largest difference {largest}; at most {share:.3%} of an output's elements differ by more than {atol}")
    return largest, not failed


def run_test(
    baseline_model: str,
    optimized_model: str,
    output_dir: str | None,
    batch_size: int,
    sequence_length: int,
    use_gpu: bool,
    test_cases: int,
    seed: int,
    verbose: bool,
    rtol: float,
    atol: float,
    input_ids_name: str | None,
    segment_ids_name: str | None,
    input_mask_name: str | None,
    mask_type: int,
    dictionary_size: int = 1024,
) -> tuple[float, bool]:
    """Compare two models on made-up inputs, which are written to `output_dir` if that is given."""
    values = get_bert_inputs(baseline_model, input_ids_name, segment_ids_name, input_mask_name)
    lengths = sequence_length, True, mask_type
    inputs = generate_test_data(
        batch_size, sequence_length, test_cases, seed, verbose, *values, *lengths, dictionary_size=dictionary_size
    )
    baseline, _, _ = run_model(baseline_model, inputs, use_gpu, disable_optimization=True)
    optimized, _, _ = run_model(optimized_model, inputs, use_gpu, disable_optimization=False)
    if output_dir:
        for number, feeds in enumerate(inputs):
            output_test_data(f"{output_dir}/test_data_set_{number}", feeds)
    return compare(baseline, optimized, verbose, rtol, atol)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare an optimized BERT with the original.")
    parser.add_argument("--baseline_model", required=True, help="path of the model before")
    parser.add_argument("--optimized_model", required=True, help="path of the optimized model")
    parser.add_argument("--output_dir", default=None, help="folder for the inputs")
    parser.add_argument("--batch_size", type=int, default=1, help="size of the batch")
    parser.add_argument("--sequence_length", type=int, default=128, help="length of the sequences")
    parser.add_argument("--rtol", type=float, default=1e-3, help="relative tolerance")
    parser.add_argument("--atol", type=float, default=1e-4, help="absolute tolerance")
    parser.add_argument("--samples", type=int, default=100, help="how many inputs")
    parser.add_argument("--seed", type=int, default=3, help="for others")
    parser.add_argument("--use_gpu", action="store_true", help="accepted for compatibility")
    parser.add_argument("--verbose", action="store_true", help="say which cases differ")
    for name in ("input_ids", "segment_ids", "input_mask"):
        parser.add_argument(f"--{name}", default=None, help=f"the input for {name}, if its name does not tell")
    parser.add_argument("--mask_type", type=int, default=2, help="1: lengths, 2: ones and zeros, 3: lengths with sums")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    run_test(
        options.baseline_model,
        options.optimized_model,
        options.output_dir,
        options.batch_size,
        options.sequence_length,
        options.use_gpu,
        options.samples,
        options.seed,
        options.verbose,
        options.rtol,
        options.atol,
        options.input_ids,
        options.segment_ids,
        options.input_mask,
        options.mask_type,
    )


if __name__ == "__main__":
    main()
