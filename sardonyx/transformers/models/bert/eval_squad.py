"""How well and how fast .onnx files answer the questions of SQuAD; the table of details and one for each figure.

`python -m sardonyx.transformers.models.bert.eval_squad -m deepset/roberta-base-squad2 --onnx model.onnx -s 128 384 -b 8 -t 1000`
"""

from __future__ import annotations

import argparse
import csv
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sardonyx.transformers.benchmark_helper import setup_logger
from sardonyx.transformers.machine_info import get_package_version as get_package_version
from sardonyx.transformers.models.bert.squad import Answer, Question, load_questions, scores
from sardonyx.transformers.step_times import optimum_package
from sardonyx.transformers.torch_onnx_export_helper import transformers_package

logger = logging.getLogger(__name__)
CPU = "CPUExecutionProvider"
PRETRAINED_SQUAD_MODELS = [
    "bert-large-uncased-whole-word-masking-finetuned-squad",
    "deepset/roberta-base-squad2",
    "distilbert-base-cased-distilled-squad",
]
PACKAGES = "sardonyx", "onnxruntime", "onnx", "torch", "transformers", "optimum", "datasets"
SETTINGS = ["pretrained_model_name", "onnx_path", "provider", "disable_fused_attention", "use_io_binding"]
FIGURES = [
    *("exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total"),
    *("best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"),
    *("total_time_in_seconds", "samples_per_second", "latency_in_seconds"),
]
SUMMARIES = "f1", "exact", "samples_per_second"
Row = dict[str, Any]
Answerer = Callable[[list[str], list[str]], Sequence[Mapping[str, Any]]]
"""Gives the answer to each question about the text beside it: `answer` and its probability as `score`."""


def load_onnx_model(
    model_id: str, onnx_path: str | None = None, provider: str = CPU, use_io_binding: bool = False
) -> tuple[Any, str]:
    """optimum's model of a file and the path of that file; without a path optimum exports one into the folder `model_id`."""
    _refuse_other_providers(provider)
    loader = optimum_package().ORTModelForQuestionAnswering
    options = {"provider": provider, "use_io_binding": use_io_binding}
    if onnx_path is not None:
        path = Path(onnx_path)
        return loader.from_pretrained(str(path.parent), file_name=path.name, **options), onnx_path
    model = loader.from_pretrained(model_id, export=True, **options)
    model.save_pretrained(model_id)
    return model, str(Path(model_id, "model.onnx"))


def _refuse_other_providers(provider: str) -> None:
    if provider != CPU:
        raise ValueError(f"models run on the CPU here, there is no {provider!r}; leave --provider out")


def output_details(results: Sequence[Row], csv_filename: str) -> None:
    """Append a table of all figures, a line for each result. Figures of questions without an answer stand last, if there are any."""
    columns = [*SETTINGS[:4], "batch_size", "sequence_length", *SETTINGS[4:], *FIGURES]
    _append(csv_filename, list(dict.fromkeys([*columns, *(name for row in results for name in row)])), results)


def output_summary(results: Sequence[Row], csv_filename: str, metric_name: str) -> None:
    """Append a table of one figure: a line for each file, a column for each size."""
    lengths, batches = (sorted({row[name] for row in results}) for name in ("sequence_length", "batch_size"))
    sizes = [f"b{batch}_s{length}" for length in lengths for batch in batches]
    lines: dict[str, Row] = {}
    for row in sorted(results, key=lambda row: row["onnx_path"]):
        if row.get(metric_name) is not None:
            line = lines.setdefault(row["onnx_path"], {name: row[name] for name in SETTINGS if name in row})
            line.setdefault(f"b{row['batch_size']}_s{row['sequence_length']}", row[metric_name])
    _append(csv_filename, [*SETTINGS, *sizes], list(lines.values()))


def _append(path: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    logger.info("written to %s", path)


def measured(answer: Answerer, questions: Sequence[Question]) -> Row:
    """The scores of the answers to all questions, and the time that they took."""
    start = time.perf_counter()
    found = answer([question.text for question in questions], [question.context for question in questions])
    seconds = time.perf_counter() - start
    answers = [Answer(one["answer"], _none_probability(one)) for one in found]
    return scores(questions, answers) | {
        "total_time_in_seconds": seconds,
        "samples_per_second": len(questions) / seconds,
        "latency_in_seconds": seconds / len(questions),
    }


def _none_probability(answer: Mapping[str, Any]) -> float:
    """How likely there is no answer; an empty answer has that as its own probability."""
    return 1 - answer["score"] if answer["answer"] else answer["score"]


def answerer(model: Any, tokenizer: Any, sequence_length: int, batch_size: int) -> Answerer:
    """A model with the pipeline of transformers around it, which cuts longer texts into pieces that overlap."""
    hub = transformers_package()
    if not hasattr(hub, "QuestionAnsweringPipeline"):
        raise ImportError(
            f"transformers {hub.__version__} has no pipeline that answers questions any more: pip install 'transformers<5'"
        )
    pipeline = hub.pipeline("question-answering", model=model, tokenizer=tokenizer, batch_size=batch_size)
    sizes = {"max_seq_len": sequence_length, "doc_stride": min(sequence_length // 2, 128)}

    def answer(questions: list[str], contexts: list[str]) -> Sequence[Mapping[str, Any]]:
        found = pipeline(question=questions, context=contexts, handle_impossible_answer=True, **sizes)
        return [found] if len(questions) == 1 else found

    return answer


def main(argv: Sequence[str] | None = None) -> list[Row]:
    """Measure all lengths and write the tables into the current folder; gives the rows of the details."""
    args = parse_arguments(argv)
    setup_logger(False)
    _refuse_other_providers(args.provider)
    if args.onnx and not Path(args.onnx).is_file():
        raise FileNotFoundError(f"there is no file {args.onnx}")
    questions = load_questions(args.dataset, args.total)
    hub = transformers_package()
    for name in PACKAGES:
        if version := get_package_version(name):
            logger.info("%s %s", name, version)
    model, path = load_onnx_model(args.model_name, args.onnx, args.provider, args.use_io_binding)
    tokenizer = hub.AutoTokenizer.from_pretrained(args.model_name)
    _check_lengths(args.sequence_lengths, model.config)
    results = [
        measured(answerer(model, tokenizer, length, args.batch_size), questions) | _settings(args, path, length)
        for length in args.sequence_lengths
    ]
    output_details(results, "detail.csv")
    for metric in SUMMARIES:
        output_summary(results, f"{metric}.csv", metric)
    return results


def _check_lengths(lengths: Sequence[int], config: Any) -> None:
    """Refuse lengths for which a model has no places."""
    places = getattr(config, "max_position_embeddings", None)
    for length in lengths:
        if length < 1 or (places is not None and length > places):
            raise ValueError(f"expected sequence lengths from 1 to {places}, for which the model has places, got {length}")


def _settings(args: argparse.Namespace, path: str, length: int) -> Row:
    return {
        "pretrained_model_name": args.model_name,
        "onnx_path": path,
        "provider": args.provider,
        "disable_fused_attention": False,  # a switch of kernels of CUDA
        "batch_size": args.batch_size,
        "sequence_length": length,
        "use_io_binding": args.use_io_binding,
    }


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = ", ".join(PRETRAINED_SQUAD_MODELS)
    parser.add_argument(
        "-m", "--model_name", default=PRETRAINED_SQUAD_MODELS[0], help=f"name or folder of the model, as {known}"
    )
    parser.add_argument("-s", "--sequence_lengths", nargs="+", type=int, default=[384], help="tokens of a piece of text")
    parser.add_argument("-b", "--batch_size", type=int, default=1, help="pieces that a run takes")
    parser.add_argument("-t", "--total", type=int, default=0, help="how many questions; 0 for all")
    parser.add_argument("--onnx", default=None, help="the file that is measured; if there is none, optimum exports one")
    parser.add_argument("--provider", default=CPU, help="others are refused: there are no GPUs here")
    parser.add_argument("--use_io_binding", action="store_true", help="run in bound memory")
    parser.add_argument(
        "--dataset", default="squad", help="a file or folder in SQuAD's format, or a set that the package datasets fetches"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
