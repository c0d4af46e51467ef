"""Questions of SQuAD: how answers are scored, what is read and written, and files that answer with optimum."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from sardonyx.transformers.models.bert import eval_squad, squad
from sardonyx.transformers.models.bert.squad import Answer, Question

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")
hub = pytest.importorskip("transformers", reason="the models are of the package transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
OPTIMUM = importlib.util.find_spec("optimum") is not None
RIVER = "The Nile flows north into the sea . Its source is a lake ."
FACTS: dict[str, Any] = {
    "title": "Rivers",
    "paragraphs": [
        {
            "context": RIVER,
            "qas": [
                {"id": "1", "question": "where does it flow ?", "answers": [{"text": "north"}, {"text": "into the sea"}]},
                {"id": "2", "question": "what is its source ?", "answers": [{"text": "a lake"}]},
                {"id": "3", "question": "how long is it ?", "answers": [], "is_impossible": True},
            ],
        }
    ],
}
QUESTIONS = [
    Question("where does it flow ?", RIVER, ("north", "into the sea")),
    Question("what is its source ?", RIVER, ("a lake",)),
    Question("how long is it ?", RIVER, ()),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in SQuAD's format: what is made for training is not read."""
    (tmp_path / "dev-v2.0.json").write_text(json.dumps({"version": "v2.0", "data": [FACTS]}))
    (tmp_path / "train-v2.0.json").write_text(json.dumps({"version": "v2.0", "data": [FACTS, FACTS]}))
    return tmp_path


def test_answers_are_compared_without_case_punctuation_articles_and_white_space() -> None:
    assert squad.normalized("  The quick,\tbrown fox's\nden -- an ANNEX of a theatre. ") == [
        *("quick", "brown", "foxs", "den", "annex", "of", "theatre")
    ]
    assert squad.normalized("The A an!") == []
    assert squad.exact_match("The Eiffel Tower.", "eiffel  tower") == 1
    assert squad.exact_match("tower eiffel", "eiffel tower") == 0


@pytest.mark.parametrize(
    ("answer", "wanted", "value"),
    [
        ("the cat sat", "a cat sat", 1),
        ("cat sat on mat", "cat mat", 2 / 3),  # two in common: precision 2/4, recall 2/2
        ("cat cat dog", "cat cat cat", 2 / 3),  # repeated words count as often as both have them
        ("mat cat", "cat mat", 1),
        ("dog", "cat", 0),
        ("", "cat", 0),
        ("the", "", 1),  # no words are left of either
    ],
)
def test_f1_is_of_the_words_in_common(answer: str, wanted: str, value: float) -> None:
    assert squad.f1(answer, wanted) == pytest.approx(value)


def test_scores_take_the_best_accepted_answer_and_tell_kinds_apart() -> None:
    answers = [Answer("the sea", 0.25), Answer("a lake", 0.5), Answer("very long", 0.75)]
    scores = squad.scores(QUESTIONS, answers)
    # "sea" has one word in common with "into sea": 2 * 1 / (1 + 2)
    assert scores == pytest.approx(
        {
            "exact": 100 / 3,
            "f1": 100 * (2 / 3 + 1) / 3,
            "total": 3,
            "HasAns_exact": 50,
            "HasAns_f1": 100 * (2 / 3 + 1) / 2,
            "HasAns_total": 2,
            "NoAns_exact": 0,
            "NoAns_f1": 0,
            "NoAns_total": 1,
            # without the answer of which the model is least sure, the third question is right
            "best_exact": 200 / 3,
            "best_exact_thresh": 0.5,
            "best_f1": 100 * (2 / 3 + 1 + 1) / 3,
            "best_f1_thresh": 0.5,
        }
    )
    right = squad.scores(QUESTIONS, [Answer("north"), Answer("Lake!"), Answer("", 1)])
    assert right["exact"] == right["f1"] == right["best_exact"] == 100
    assert "NoAns_total" not in squad.scores(QUESTIONS[:1], answers[:1])


def test_files_and_folders_have_questions(folder: Path) -> None:
    assert squad.load_questions(str(folder)) == QUESTIONS
    assert squad.load_questions(str(folder / "train-v2.0.json")) == QUESTIONS * 2
    assert squad.load_questions(str(folder), 2) == QUESTIONS[:2]


def test_what_has_no_questions_is_an_error(folder: Path, tmp_path_factory) -> None:
    with pytest.raises(ValueError, match="got -1"):
        squad.load_questions(str(folder), -1)
    with pytest.raises(FileNotFoundError, match=r"no dev\*\.json"):
        squad.load_questions(str(tmp_path_factory.mktemp("empty")))
    other = folder / "other.json"
    for text in ("{", "[]", '{"data": [{"paragraphs": [{"qas": [{}]}]}]}'):
        other.write_text(text)
        with pytest.raises(ValueError, match="other.json is not in SQuAD's format"):
            squad.load_questions(str(other))
    other.write_text('{"data": []}')
    with pytest.raises(ValueError, match="no questions"):
        squad.load_questions(str(other))


def test_sets_of_the_hub_need_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(ImportError, match="pip install datasets"):
        squad.load_questions("squad")


def test_answers_are_timed_and_scored() -> None:
    def answer(questions: list[str], contexts: list[str]) -> list[dict[str, Any]]:
        """The last word of the text for a question about a source, none for others."""
        words = [
            context.split()[-2] if "source" in question else "" for question, context in zip(questions, contexts, strict=True)
        ]
        return [{"answer": word, "score": 0.75} for word in words]

    row = eval_squad.measured(answer, QUESTIONS)
    assert (row["exact"], row["total"]) == (pytest.approx(200 / 3), 3)
    assert row["best_exact_thresh"] == 0.25  # so it doubts "lake", and by 0.75 that the others have an answer
    assert row["samples_per_second"] == pytest.approx(3 / row["total_time_in_seconds"])
    assert row["latency_in_seconds"] == pytest.approx(1 / row["samples_per_second"])


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tables_have_a_line_for_each_file_and_a_column_for_each_size(tmp_path: Path) -> None:
    shared = {"pretrained_model_name": "bert", "provider": "CPUExecutionProvider", "use_io_binding": False}
    sizes = [("b.onnx", 1, 128, 80.5), ("a.onnx", 1, 128, 0.0), ("a.onnx", 2, 64, None), ("a.onnx", 1, 64, 70.0)]
    rows = [
        {**shared, "onnx_path": path, "batch_size": batch, "sequence_length": length, "f1": value}
        for path, batch, length, value in sizes
    ]
    eval_squad.output_summary(rows, str(tmp_path / "f1.csv"), "f1")
    lines = read(tmp_path / "f1.csv")
    assert list(lines[0])[-4:] == ["b1_s64", "b2_s64", "b1_s128", "b2_s128"]
    assert [[line["onnx_path"], *list(line.values())[-4:]] for line in lines] == [
        ["a.onnx", "70.0", "", "0.0", ""],
        ["b.onnx", "", "", "80.5", ""],
    ]
    eval_squad.output_details([*rows, {**rows[0], "NoAns_f1": 3}], str(tmp_path / "detail.csv"))
    details = read(tmp_path / "detail.csv")
    assert [(line["onnx_path"], line["batch_size"]) for line in details[:2]] == [("b.onnx", "1"), ("a.onnx", "1")]
    assert list(details[0])[-2:] == ["latency_in_seconds", "NoAns_f1"] and details[-1]["NoAns_f1"] == "3"
    before = (tmp_path / "f1.csv").read_text()
    eval_squad.output_summary(rows, str(tmp_path / "f1.csv"), "f1")
    assert (tmp_path / "f1.csv").read_text() == before * 2


def test_versions_are_those_of_installed_packages() -> None:
    assert eval_squad.get_package_version("torch") == importlib.metadata.version("torch")
    assert eval_squad.get_package_version("no such package") is None


def test_arguments_are_those_of_onnxruntime_and_a_source_of_questions() -> None:
    args = eval_squad.parse_arguments([])
    assert vars(args) == {
        "model_name": "bert-large-uncased-whole-word-masking-finetuned-squad",
        "sequence_lengths": [384],
        "batch_size": 1,
        "total": 0,
        "onnx": None,
        "provider": "CPUExecutionProvider",
        "use_io_binding": False,
        "dataset": "squad",
    }
    sizes = ["-s", "64", "128", "-b", "8", "-t", "100"]
    args = eval_squad.parse_arguments(["-m", "bert", *sizes, "--onnx", "a.onnx", "--use_io_binding", "--dataset", "dev.json"])
    assert (args.sequence_lengths, args.batch_size, args.total, args.dataset) == ([64, 128], 8, 100, "dev.json")


def test_what_cannot_be_measured_is_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="no 'CUDAExecutionProvider'; leave --provider out"):
        eval_squad.main(["--provider", "CUDAExecutionProvider"])
    with pytest.raises(ValueError, match="on the CPU"):
        eval_squad.load_onnx_model("bert", provider="CUDAExecutionProvider")
    with pytest.raises(FileNotFoundError, match=r"nothing\.onnx"):
        eval_squad.main(["--onnx", str(folder / "nothing.onnx"), "--dataset", str(folder)])


def test_files_need_optimum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", None)  # as if it were not installed
    with pytest.raises(ImportError, match="pip install optimum-onnx"):
        eval_squad.main(["-m", str(folder), "--dataset", str(folder)])


@pytest.mark.skipif(
    hasattr(hub, "QuestionAnsweringPipeline"), reason="version 4 has the pipeline; the error is that of version 5"
)
def test_the_pipeline_needs_version_4() -> None:
    with pytest.raises(ImportError, match="transformers<5"):
        eval_squad.answerer(None, None, 64, 1)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tiny BERT with random weights, and the words that it knows."""
    torch.manual_seed(5)
    words = sorted({word for question in QUESTIONS for word in f"{question.text} {question.context}".lower().split()})
    path = tmp_path / "checkpoint"
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    hub.BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = hub.BertConfig(vocab_size=len(words) + 5, max_position_embeddings=40, **sizes)
    model = hub.BertForQuestionAnswering(config)
    for parameter in model.parameters():
        parameter.data *= 5  # so that answers differ
    model.eval().save_pretrained(path)
    return path


@pytest.mark.skipif(
    not OPTIMUM, reason="optimum runs the files, and needs version 4 of transformers: `pip install optimum-onnx`"
)
def test_files_score_as_pytorch_does(folder: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["-s", "24", "40", "-b", "2", "--dataset", str(folder)]
    exported = eval_squad.main(["-m", str(checkpoint), *sizes])
    again = eval_squad.main(["-m", str(checkpoint), "--onnx", str(checkpoint / "model.onnx"), *sizes])
    model = hub.BertForQuestionAnswering.from_pretrained(checkpoint).eval()
    tokenizer = hub.AutoTokenizer.from_pretrained(checkpoint)
    for length, *rows in zip((24, 40), exported, again, strict=True):
        expected = eval_squad.measured(eval_squad.answerer(model, tokenizer, length, 1), QUESTIONS)
        for row in rows:
            for name, value in expected.items():
                if "second" not in name:
                    assert row[name] == pytest.approx(value, abs=1e-4), name
            assert (row["sequence_length"], row["batch_size"]) == (length, 2) and row["f1"] > 0
            assert math.isclose(row["samples_per_second"] * row["latency_in_seconds"], 1)
    assert len(read(tmp_path / "detail.csv")) == 5  # two runs, with a line of names between them
    assert read(tmp_path / "samples_per_second.csv")[0]["b2_s40"] == str(exported[1]["samples_per_second"])
    with pytest.raises(ValueError, match="from 1 to 40"):
        eval_squad.main(["-m", str(checkpoint), "--onnx", str(checkpoint / "model.onnx"), "-s", "41", "--dataset", str(folder)])
