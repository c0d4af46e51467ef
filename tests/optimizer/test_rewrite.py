"""The rewrite engine: patterns, names, commutativity, privacy of inner values, refusals, fixed points."""

from __future__ import annotations

import inspect

import pytest

from sardonyx.ir import edit
from sardonyx.ops import schemas
from sardonyx.optimizer import matching
from sardonyx.optimizer.levels import LEVELS
from sardonyx.optimizer.passes import rotary
from sardonyx.optimizer.pattern import PatternError, parse
from sardonyx.optimizer.pipeline import Late
from sardonyx.optimizer.rewrite import Journal, apply_rules, rule, skip, surroundings
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, typed


@rule("Transpose<perm=outer>(Transpose<perm=inner>(x))")
def merge_transposes(op, x, inner, outer):
    """Two permutations are one; if that is the identity, none."""
    perm = [inner[axis] for axis in outer]
    return x if perm == sorted(perm) else op.Transpose(x, perm=perm)


@rule("Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1)), 0.5)")
def recognize_gelu(op, x):
    return op.Gelu(x)


def test_inverse_transposes_cancel():
    assert_rewrites(
        merge_transposes,
        "g (float[2,3,4] x) => (float[2,3,4] y) { t = Transpose<perm=[1,2,0]>(x) u = Transpose<perm=[2,0,1]>(t) y = Neg(u) }",
        "g (float[2,3,4] x) => (float[2,3,4] y) { y = Neg(x) }",
    )


def test_a_rewrite_that_is_not_the_expected_one_is_shown_with_it():
    before = "g (float[2,3] x) => (float[2,3] y) { t = Transpose<perm=[1,0]>(x) y = Transpose<perm=[1,0]>(t) }"
    with pytest.raises(AssertionError) as failure:
        assert_rewrites(merge_transposes, before, "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    assert "the graph became\n    y = Identity<>(x)\nand not\n    y = Neg<>(x)" in str(failure.value)


def test_an_output_that_becomes_an_input_goes_through_an_identity():
    assert_rewrites(
        merge_transposes,
        "g (float[2,3,4] x) => (float[2,3,4] y) { t = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[2,0,1]>(t) }",
        "g (float[2,3,4] x) => (float[2,3,4] y) { y = Identity(x) }",
    )


def test_a_chain_is_rewritten_to_its_end():
    steps = " ".join(f"t{i + 1} = Transpose<perm=[1,2,0]>(t{i})" for i in range(40))
    assert_rewrites(
        merge_transposes,
        f"g (float[2,3,4] t0) => (float[3,4,2] y) {{ {steps} y = Identity(t40) }}",
        "g (float[2,3,4] t0) => (float[3,4,2] y) { t = Transpose<perm=[1,2,0]>(t0) y = Identity(t) }",
    )


def test_a_value_used_elsewhere_is_left_alone_and_the_reason_is_told():
    journal = assert_rewrites(
        merge_transposes,
        "g (float[2,3,4] x) => (float[2,3,4] y, float[3,4,2] t) { t = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[2,0,1]>(t) }",
        None,
    )
    assert str(journal.events[0]) == "merge_transposes at Transpose 'y': not applied, 't' is used elsewhere"


@pytest.mark.parametrize("order", ["Mul(f, u)", "Mul(u, f)"])
@pytest.mark.parametrize("sum_order", ["Add(one, e)", "Add(e, one)"])
def test_commutative_operands_match_in_either_order(order, sum_order):
    constants = "c = Constant<value_float=1.41421354>() one = Constant<value_float=1.0>() half = Constant<value_float=0.5>()"
    assert_rewrites(
        recognize_gelu,
        f"g (float[N] u) => (float[N] y) {{ {constants} d = Div(u, c) e = Erf(d) f = {sum_order} h = {order} y = Mul(half, h) }}",
        "g (float[N] u) => (float[N] y) { y = Gelu(u) }",
    )


def test_an_operand_is_matched_as_attribute_and_as_input():
    pattern = parse("ReduceMean<axes=axes, keepdims=1>(x)")
    by_input = typed("g (float[2,3] x) => (float[2,1] y) { k = Constant<value_ints=[1]>() y = ReduceMean(x, k) }", 18)
    by_attribute = typed("g (float[2,3] x) => (float[2,1] y) { y = ReduceMean<axes=[1]>(x) }", 13)
    for model in (by_input, by_attribute):
        match = matching.find(pattern, model.graph.outputs[0].producer)
        assert match is not None
        assert match.bindings["axes"] == [1]
        assert match.bindings["x"].name == "x"


def test_what_is_built_follows_the_models_opset():
    @rule("Neg(x)")
    def neg_to_mean(op, x):
        return op.ReduceMean(x, axes=[1], keepdims=1)

    for opset in (13, 18):
        model = typed("g (float[2,1] x) => (float[2,1] y) { y = Neg(x) }", opset)
        apply_rules(model, [neg_to_mean], evaluate=evaluate, journal=Journal(strict=True))
        (node,) = model.graph.nodes
        assert ("axes" in node.attributes) == (opset == 13)
        assert len(node.inputs) == (1 if opset == 13 else 2)


def test_the_same_name_is_the_same_value():
    pattern = parse("Add(x, x)")
    model = typed("g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Add(a, a) z = Add(a, b) }")
    y, z = (value.producer for value in model.graph.outputs)
    assert matching.find(pattern, y) is not None
    assert matching.find(pattern, z) is None


def test_statements_share_nodes_and_optional_operands_may_be_absent():
    pattern = parse("d = Sub(x, mean); Mul(d, Clip(d, low?, high?))")
    model = typed("g (float[2] x, float[2] m) => (float[2] y) { d = Sub(x, m) c = Clip(d) y = Mul(c, d) }")
    match = matching.find(pattern, model.graph.outputs[0].producer)
    assert match is not None
    assert match.bindings["low"] is None
    assert match.bindings["d"].name == "d"


def test_several_outputs_have_names():
    pattern = parse("a, b = Split<axis=0>(x, ...); Add(a, b)")
    model = typed("g (float[4] x) => (float[2] y) { p, q = Split<axis=0, num_outputs=2>(x) y = Add(q, p) }")
    match = matching.find(pattern, model.graph.outputs[0].producer)
    assert match is not None
    assert match.bindings["a"].name == "p"


def test_one_of_several_ops_is_handed_over():
    @rule("act:Relu|Tanh(Neg(x))")
    def swap(op, act, x):
        return op.Neg(op.node(act.op_type, x)) if act.op_type == "Tanh" else skip("only Tanh is odd")

    assert_rewrites(
        swap,
        "g (float[2] x) => (float[2] y) { n = Neg(x) y = Tanh(n) }",
        "g (float[2] x) => (float[2] y) { t = Tanh(x) y = Neg(t) }",
    )
    journal = assert_rewrites(swap, "g (float[2] x) => (float[2] y) { n = Neg(x) y = Relu(n) }", None)
    assert [event.reason for event in journal.events] == ["only Tanh is odd"]


def test_what_a_refusing_rule_built_is_taken_back():
    @rule("Neg(x)")
    def hesitant(op, x):
        op.Add(x, op.constant(1.0))
        return skip("changed my mind")

    model = typed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    apply_rules(model, [hesitant], evaluate=evaluate, journal=Journal(strict=True))
    assert [node.op_type for node in model.graph.nodes] == ["Neg"]
    assert not model.graph.initializers


def test_a_rule_that_raises_is_skipped_with_a_warning_in_production(caplog):
    @rule("Neg(x)")
    def broken(op, x):
        raise ZeroDivisionError("oops")

    model = typed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    assert not apply_rules(model, [broken], evaluate=evaluate, journal=Journal())
    assert "rule broken failed at Neg 'y' and is skipped: oops" in caplog.text
    with pytest.raises(ZeroDivisionError):
        apply_rules(model, [broken], evaluate=evaluate, journal=Journal(strict=True))


def test_a_refusal_lets_the_other_order_of_operands_be_tried():
    @rule("Add|Sub(x, c)")
    def drop_constant(x, c):
        return x if c.is_constant else skip("no constant")

    text = "g (float[2] x) => (float[2] y) <float[2] c = {0, 0}> { a = Add(c, x) y = Neg(a) }"
    journal = assert_rewrites(drop_constant, text, "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    assert [str(event) for event in journal.events] == ["drop_constant at Add 'a'"]
    assert_rewrites(drop_constant, text.replace("Add", "Sub"), None)


@pytest.mark.parametrize("middle", ["t = Cast<to=1>(n) y = Abs(t)", "y = Abs(n)"])
def test_a_call_with_a_question_mark_may_be_missing(middle):
    @rule("Abs(cast:Cast?(Neg(x)))")
    def drop_sign(op, x, cast=None):
        return op.Abs(x if cast is None else op.Cast(x, to=1))

    after = "t = Cast<to=1>(x) y = Abs(t)" if "Cast" in middle else "y = Abs(x)"
    head = "g (float[2] x) => (float[2] y) "
    assert_rewrites(drop_sign, head + f"{{ n = Neg(x) {middle} }}", head + f"{{ {after} }}")


def test_nodes_outside_a_body_are_not_pulled_into_it():
    @rule("Neg(Neg(x))")
    def cancel(x):
        return x

    branches = "then_branch = t () => (float[2] a) { a = Neg(n) }, else_branch = e () => (float[2] a) { m = Neg(x) a = Neg(m) }"
    text = f"g (float[2] x, bool c) => (float[2] y) {{ n = Neg(x) y = If <{branches}> (c) }}"
    assert_rewrites(cancel, text, text.replace("m = Neg(x) a = Neg(m)", "a = Identity(x)"))


def test_a_kept_value_can_be_replaced_and_users_before_the_root_follow():
    @rule("s = Neg(x); y = Abs(s)", keep=("s",))
    def from_one_node(op, x):
        lower, upper = op.Split(op.Concat(op.Neg(x), op.Abs(x), axis=0), axis=0, num_outputs=2, outputs=2)
        return {"s": lower, "y": upper}

    text = "g (float[2] x) => (float[2] y, float[2] z) { s = Neg(x) z = Exp(s) y = Abs(s) }"
    after = "{ n = Neg(x) a = Abs(x) c = Concat<axis=0>(n, a) s, y = Split<axis=0, num_outputs=2>(c) z = Exp(s) }"
    assert_rewrites(from_one_node, text, "g (float[2] x) => (float[2] y, float[2] z) " + after)


def test_a_rule_must_not_change_the_type(caplog):
    @rule("Neg(x)")
    def to_half(op, x):
        return op.Cast(x, to=10)

    model = typed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    assert not apply_rules(model, [to_half], evaluate=evaluate, journal=Journal())
    assert "'y' is float[2], in its place would come float16[2]" in caplog.text
    assert [node.op_type for node in model.graph.nodes] == ["Neg"]


def test_what_was_known_of_the_old_value_holds_for_the_new_one():
    @rule("Neg(x)")
    def opaque(op, x):
        return op.Reshape(x, op.Cast(op.Cast(op.constant([-1]), to=1), to=7))

    model = typed("g (float[N] x) => (float[N] y) { n = Neg(x) y = Abs(n) }")
    apply_rules(model, [opaque], evaluate=evaluate, journal=Journal(strict=True))
    assert str(model.graph.outputs[0].producer.inputs[0].type.shape[0]) == "N"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Add?(x, y)", "only a call of one operand may be missing"),
        ("Transpoze(x)", "no op Transpoze"),
        ("Transpose<prem=p>(x)", "no operand 'prem'"),
        ("Transpose(x", "expected"),
        ("Transpose(x) $", "unexpected"),
    ],
)
def test_a_misspelt_pattern_fails_at_once(text, reason):
    with pytest.raises(PatternError, match=reason):
        parse(text)


RULES = [one for stages in LEVELS.values() for stage in stages for one in stage.rules]


def test_the_patterns_of_all_rules_name_ops_and_operands_that_exist():
    patterns = {pattern.text for one in RULES for pattern in one.patterns}
    assert len(patterns) > 100
    for text in (*patterns, rotary.PATTERN.text):
        parse(text)


def test_all_passes_are_where_the_levels_say():
    late = [stage.run for stages in LEVELS.values() for stage in stages if isinstance(stage.run, Late)]
    assert len(late) > 10
    for one in late:
        assert callable(one.find())


def test_passes_name_ops_that_exist():
    for stage in (stage for stages in LEVELS.values() for stage in stages if stage.ops):
        assert all(schemas.versions(domain, name) for domain, name in stage.roots), stage.name


def test_all_rules_ask_for_names_that_their_patterns_bind():
    for one in RULES:
        optional = {
            name for name, known in inspect.signature(one.function).parameters.items() if known.default is not known.empty
        }
        for pattern in one.patterns:
            assert one.parameters - optional - {"op", "root"} <= pattern.names, (one.name, pattern.text)


def test_what_is_seen_of_a_pattern_at_a_glance_is_what_it_says():
    for pattern in {pattern for one in RULES for pattern in one.patterns}:
        assert pattern.roots == list(pattern.root.ops), pattern.text
        needed = {op for call in pattern.calls() if len(call.ops) == 1 and not call.optional for op in call.ops}
        assert pattern.needs == needed, pattern.text


def test_the_surroundings_of_a_node_are_as_deep_as_patterns_and_begin_right_before_it():
    model = typed("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) c = Exp(b) d = Sqrt(c) e = Erf(d) y = Tanh(e) }")
    c = next(node for node in model.graph.nodes if node.op_type == "Exp")
    assert {node.op_type: distance for node, distance in surroundings([c], 3).items()} == {
        "Abs": 0,
        "Exp": 0,
        "Sqrt": 1,
        "Erf": 2,
    }


def test_graphs_tell_what_is_edited_while_somebody_wants_to_know():
    model = typed("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Exp(b) }")
    neg, absolute, exp = model.graph.nodes
    model.graph.edited = edited = []
    edit.replace_all_uses(absolute.outputs[0], neg.outputs[0])
    assert {exp, neg, absolute} == set(edited)
    edited.clear()
    model.graph.remove(absolute)
    assert {neg, absolute} == set(edited)
    edited.clear()
    model.graph.edited = None
    exp.set_input(0, model.graph.inputs[0])
    assert not edited


def test_a_parameter_that_the_pattern_lacks_fails_at_once():
    with pytest.raises(PatternError, match="asks for 'y'"):
        rule("Neg(x)")(lambda op, y: y)
