"""Random graphs: machine code and NumPy at all levels, and onnxruntime, against the nodes one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from sardonyx import errors, formats
from tests import onnxruntime_peer
from tests.attack import borrowed, differences  # noqa: F401 - borrowed adds its recipe
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
        results = peer_results(subject)
        if results is not None:
            wanted = [expectation.values[name] for name in expectation.names]
            expectation.check([_typed(result, one) for result, one in zip(results, wanted, strict=True)], "onnxruntime")


def peer_results(subject: Subject) -> list[Any] | None:
    """What onnxruntime gives, None if it does not take the model."""
    try:
        return onnxruntime_peer.run(formats.load(subject.model.SerializeToString()), subject.feeds)
    except Exception:  # it has exceptions of its own for all that it refuses
        return None


def _typed(result: Any, wanted: Any) -> Any:
    """A result in a type that NumPy lacks, of which onnxruntime gives the bytes; or one that it leaves sparse, as all its elements."""
    if type(result).__name__ == "SparseTensor" and isinstance(wanted, np.ndarray):
        return _dense(result)
    if getattr(result, "dtype", None) == np.uint8 and str(getattr(wanted, "dtype", "")).startswith("float8"):
        return result.view(wanted.dtype)
    return result


def _dense(sparse: Any) -> np.ndarray:
    """All elements of an onnxruntime.SparseTensor."""
    elements, places = sparse.values(), sparse.get_coo_data().indices()
    array = np.zeros(sparse.dense_shape(), elements.dtype)
    if places.ndim == 1:
        array.reshape(-1)[places] = elements
    else:
        array[tuple(places.T)] = elements
    return array


def run(rng: random.Random) -> None:
    examine(make(rng), judge)
