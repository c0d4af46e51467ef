"""Faults on purpose, by number: the harness must find them, name them and go on. Not part of any run."""

from __future__ import annotations

import os
import random
import signal
import threading

import numpy as np
import onnx.parser

from tests.attack.subject import Problem, Subject, examine

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y, float[4] z)
    { a = Relu(x) b = Exp(a) c = Sin(b) y = Neg(c) z = Abs(x) }"""


def run(rng: random.Random, number: int) -> None:
    FAULTS[number]()


def nothing() -> None:
    pass


def wrong_number() -> None:
    _blame_sin(Problem("planted: y: 4 of 4 elements differ"))


def exception_of_a_node() -> None:
    _blame_sin(KeyError("planted"))


def _blame_sin(fault: Exception) -> None:
    """Judge a model of which only the node Sin is to blame."""

    def judge(subject: Subject) -> None:
        if any(node.op_type == "Sin" for node in subject.model.graph.node):
            raise fault

    examine(Subject(onnx.parser.parse_model(TEXT), {"x": np.ones(4, np.float32)}), judge)


def other_exception() -> None:
    raise KeyError("planted")


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    while True:
        pass


def memory_bomb() -> None:
    np.ones(1 << 33, np.uint8)


def deadlock() -> None:
    threading.Event().wait()


FAULTS = (nothing, wrong_number, other_exception, crash, hang, memory_bomb, deadlock, exception_of_a_node)
