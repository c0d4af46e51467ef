"""Random graphs: machine code and NumPy at all levels, and onnxruntime, against the nodes one by one."""

from __future__ import annotations

import random

from sardonyx import errors
from tests.attack import borrowed, differences, opinions  # noqa: F401 - borrowed adds its recipe
from tests.attack.growth import Grower, Place
from tests.attack.heavy_recipes import grow
from tests.attack.reference import Expectation, Reference
from tests.attack.subject import Problem, Subject, examine, session_of

PEER = True
"""Whether onnxruntime is asked, too; the worker turns it off to learn whose crash it was."""


def make(rng: random.Random) -> Subject:
    g = Grower(rng)
    for _ in range(rng.randint(1, 4)):
        g.fresh(g.dtype())
    grow(g, rng.choice((1, 2, 3, 5, 8, 12, 20)))
    if not g.nodes:
        return make(rng)
    model = g.model(chosen_outputs(g))
    levels = (99, rng.choice((0, 1, 2)))
    return Subject(model, dict(g.inputs), threads=rng.choice((1, 2)), levels=levels)


def chosen_outputs(g: Grower) -> list[Place]:
    """What nobody reads, a few inner values, and at times an input or a constant."""
    read = {name for node in g.nodes for name in node.input}
    produced = {name for node in g.nodes for name in node.output}
    candidates = [place for place in g.places if place.name in produced]
    leaves = [place for place in candidates if place.name not in read]
    inner = [place for place in candidates if place.name in read]
    chosen = leaves + g.rng.sample(inner, min(len(inner), g.rng.choice((0, 1, 2))))
    if g.rng.random() < 0.1:
        chosen += [place for place in g.places if place.name in g.initializers][:2]
    if g.rng.random() < 0.05:
        chosen += [place for place in g.places if place.name in g.inputs][:1]
    g.rng.shuffle(chosen)
    return chosen or candidates


def judge(subject: Subject) -> None:
    expectation = Expectation(Reference(subject.model), subject.feeds)
    for native, level in [("1", level) for level in subject.levels] + [("0", subject.levels[0])]:
        who = f"{'machine code' if native == '1' else 'NumPy'} at level {level}"
        try:
            session = session_of(subject.model, native=native, level=level, threads=subject.threads)
            results = session.run(None, dict(subject.feeds))
            again = session.run(None, dict(subject.feeds)) if native == "1" else results
        except errors.CODED as error:
            raise Problem(f"{who} refuses what the nodes one by one compute: {error}") from error
        expectation.check(results, who)
        expectation.check(again, f"{who}, second run")
    if PEER and differences.known(subject.model, expectation.values) is None:
        judge_with_peer(subject, expectation)


def judge_with_peer(subject: Subject, expectation: Expectation) -> None:
    """Compare with onnxruntime. Where it differs, a node must be found about which others do not agree with us either."""
    results = opinions.peer_opinion(subject.model, subject.feeds)
    if results is None:
        return
    wanted = [expectation.values[name] for name in expectation.names]
    try:
        expectation.check([opinions.typed(result, one) for result, one in zip(results, wanted, strict=True)], "onnxruntime")
    except Problem as problem:
        if reason := opinions.disputed(subject.model, expectation.values):
            raise Problem(f"{problem}; {reason}") from problem


def run(rng: random.Random) -> None:
    examine(make(rng), judge)
