"""Questions of SQuAD, from files or from the package datasets, and how answers to them are scored. `eval_squad` is around this.

The scores are those that Rajpurkar, Jia and Liang defined with SQuAD 2.0 ("Know What You Don't Know", 2018).
"""

from __future__ import annotations

import importlib
import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Question:
    """A question, the text that it is about, and all answers that count as right; none if the text does not tell."""

    text: str
    context: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The words of the text that a model takes as the answer, "" for none, and how likely it thinks that there is none."""

    text: str
    none_probability: float = 0.0


def load_questions(source: str, count: int = 0) -> list[Question]:
    """The first questions of a file or folder in SQuAD's format, or of a set that datasets fetches; all if `count` is 0."""
    if count < 0:
        raise ValueError(f"expected a number of questions, or 0 for all, got {count}")
    path = Path(source)
    questions = _of_files(path) if path.exists() else _of_datasets(source, count)
    if not questions:
        raise ValueError(f"{source} has no questions")
    return questions[:count] if count else questions


def _of_files(path: Path) -> list[Question]:
    """The questions of a file, or of the files of a folder that are made for evaluation."""
    files = sorted(path.glob("dev*.json")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{path} has no dev*.json; name the file of questions itself")
    return [question for file in files for question in _of_file(file)]


def _of_file(file: Path) -> Iterator[Question]:
    try:
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    answers = tuple(str(answer["text"]) for answer in entry["answers"])
                    yield Question(str(entry["question"]), str(paragraph["context"]), answers)
    except (ValueError, KeyError, TypeError) as error:  # ValueError is what text is that is not JSON
        raise ValueError(f"{file} is not in SQuAD's format: {type(error).__name__}: {error}") from error


def _of_datasets(name: str, count: int) -> list[Question]:
    """The questions for evaluation of a set that the package datasets knows."""
    rows = datasets_package(name).load_dataset(name, split=f"validation[:{count}]" if count else "validation")
    return [Question(row["question"], row["context"], tuple(row["answers"]["text"])) for row in rows]


def datasets_package(name: str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise ImportError(
            f"{name!r} is no file or folder, and the package that could fetch it is not there: pip install datasets"
        ) from error


def normalized(text: str) -> list[str]:
    """The words of an answer in small letters, without punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact_match(answer: str, wanted: str) -> float:
    """1 if both have the same words in the same order."""
    return float(normalized(answer) == normalized(wanted))


def f1(answer: str, wanted: str) -> float:
    """The harmonic mean of the shares of words that both have in common; order does not count."""
    found, right = normalized(answer), normalized(wanted)
    if not found or not right:
        return float(found == right)
    common = (Counter(found) & Counter(right)).total()
    return 2 * common / (len(found) + len(right))


def scores(questions: Sequence[Question], answers: Sequence[Answer]) -> dict[str, float]:
    """Shares of right answers and of right words in percent: of all, of questions with an answer and of those without."""
    accepted = [[text for text in question.answers if normalized(text)] or [""] for question in questions]
    measured = {"exact": exact_match, "f1": f1}
    values = {
        name: np.array(
            [max(measure(answer.text, text) for text in texts) for answer, texts in zip(answers, accepted, strict=True)]
        )
        for name, measure in measured.items()
    }
    unanswerable = np.array([texts == [""] for texts in accepted])
    result = _means(values)
    for kind, chosen in (("HasAns", ~unanswerable), ("NoAns", unanswerable)):
        if chosen.any():
            result |= {f"{kind}_{name}": value for name, value in _means({n: v[chosen] for n, v in values.items()}).items()}
    doubts = np.array([answer.none_probability for answer in answers])
    for name, value in values.items():
        result[f"best_{name}"], result[f"best_{name}_thresh"] = best_threshold(value, unanswerable, doubts)
    return result


def _means(values: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: 100 * float(value.mean()) for name, value in values.items()} | {"total": len(values["exact"])}


def best_threshold(values: np.ndarray, unanswerable: np.ndarray, doubts: np.ndarray) -> tuple[float, float]:
    """The best mean in percent that is reached by giving no answer above some doubt, and the lowest such doubt."""
    order = np.argsort(doubts, kind="stable")
    gains = np.append(0, np.cumsum((values - unanswerable)[order]))
    limits = np.unique(np.append(doubts, 0.0))
    totals = unanswerable.sum() + gains[np.searchsorted(doubts[order], limits, side="right")]
    best = int(totals.argmax())
    return 100 * float(totals[best]) / len(values), float(limits[best])
