"""Attention as exporters write it, in small: graphs in ONNX text, put together from the pieces that models share.

Sizes: N batches, S queries, P past positions; 4 heads of 8 features, so 32 in all. Names of a piece's values begin with its prefix.
"""

from __future__ import annotations

HEADS, SIZE, HIDDEN = 4, 8, 32

NUMBERS = (
    "zero = Constant<value_float=0.0>() one = Constant<value_float=1.0>() lowest = Constant<value_float=-3.4028234663852886e38>()"
    " infinite = Constant<value = float {-inf}>() eighth = Constant<value_float=0.125>() root = Constant<value_float=2.8284270763397217>()"
    " half_root = Constant<value_float=0.5946035575013605>() apart = Constant<value_ints=[0,0,4,8]>()"
    " together = Constant<value_ints=[0,0,32]>() flat = Constant<value_ints=[-1,32]>()"
    " i0 = Constant<value_int=0>() i1 = Constant<value_int=1>() i2 = Constant<value_int=2>() v0 = Constant<value_ints=[0]>()"
    " v1 = Constant<value_ints=[1]>() v2 = Constant<value_ints=[2]>() v3 = Constant<value_ints=[3]>()"
    " minus1 = Constant<value_ints=[-1]>() v4 = Constant<value_ints=[4]>() v8 = Constant<value_ints=[8]>()"
    " v32 = Constant<value_ints=[32]>() v16 = Constant<value_ints=[16]>() end = Constant<value_ints=[9223372036854775807]>() "
)


def weights(*names: str, columns: int = HIDDEN) -> str:
    """Declarations of inputs that stand for weights."""
    return "".join(f", float[{HIDDEN},{columns}] {name}" for name in names)


def split(source: str, result: str, transposed: bool = False) -> str:
    """(N, S, 32) to (N, 4, S, 8), or to (N, 4, 8, S)."""
    perm = "[0,2,3,1]" if transposed else "[0,2,1,3]"
    return f"{result}_r = Reshape({source}, apart) {result} = Transpose<perm={perm}>({result}_r) "


def join(source: str, result: str) -> str:
    """(N, 4, S, 8) to (N, S, 32)."""
    return f"{result}_t = Transpose<perm=[0,2,1,3]>({source}) {result} = Reshape({result}_t, together) "


def project(*names: str, source: str = "x") -> str:
    return "".join(f"{name}p = MatMul({source}, w{name}) " for name in names)


def softmax(scores: str, result: str, guarded: bool = False) -> str:
    if not guarded:
        return f"{result} = Softmax<axis=-1>({scores}) "
    return f"{result}_s = Softmax<axis=-1>({scores}) {result}_n = IsNaN({result}_s) {result} = Where({result}_n, zero, {result}_s) "


def self_attention(scores: str, inputs: str = "", guarded: bool = False, before: str = "") -> str:
    """Heads of one input attend to each other. `scores` makes `s` of `raw`, the products of queries and keys."""
    return (
        f"g (float[N,S,32] x{weights('wq', 'wk', 'wv')}{inputs}) => (float[N,S,32] y) {{ {NUMBERS}{before}{project('q', 'k', 'v')}"
        f"{split('qp', 'q')}{split('kp', 'k', transposed=True)}{split('vp', 'v')}raw = MatMul(q, k) {scores} "
        f"{softmax('s', 'a', guarded)}o = MatMul(a, v) {join('o', 'y')}}}"
    )


SCALED = "s = Mul(raw, eighth)"


def in_type(text: str, element: str, code: int) -> str:
    """The same graph with another element type for all that is a float; of its numbers, only `eighth` follows."""
    eighth = f"eighth32 = Constant<value_float=0.125>() eighth = Cast<to={code}>(eighth32)"
    return text.replace("float[", f"{element}[").replace("eighth = Constant<value_float=0.125>()", eighth)


def bert() -> str:
    """The older exporter's BERT: sizes computed in the graph, biases, scores divided, (1 - mask) · lowest added."""
    sizes = "shape = Shape(x) n0 = Gather(shape, i0) s0 = Gather(shape, i1) n1 = Unsqueeze(n0, v0) s1 = Unsqueeze(s0, v0) "
    apart = "dims = Concat<axis=0>(n1, s1, v4, v8) all = Concat<axis=0>(n1, s1, v32) "
    heads = "".join(
        f"{name}p = MatMul(x, w{name}) {name}b = Add({name}p, b{name}) {name}r = Reshape({name}b, dims)"
        f" {name} = Transpose<perm={'[0,2,3,1]' if name == 'k' else '[0,2,1,3]'}>({name}r) "
        for name in "qkv"
    )
    mask = (
        "u1 = Unsqueeze(mask, v1) u2 = Unsqueeze(u1, v2) m = Cast<to=1>(u2) inverse = Sub(one, m) bias = Mul(inverse, lowest) "
    )
    return (
        f"g (float[N,S,32] x, int64[N,S] mask{weights('wq', 'wk', 'wv')}, float[32] bq, float[32] bk, float[32] bv)"
        f" => (float[N,S,32] y) {{ {NUMBERS}{sizes}{apart}{heads}{mask}raw = MatMul(q, k) scaled = Div(raw, root)"
        f" s = Add(scaled, bias) a = Softmax<axis=3>(s) o = MatMul(a, v) t = Transpose<perm=[0,2,1,3]>(o) y = Reshape(t, all) }}"
    )


def sdpa(hidden: str = "lowest") -> str:
    """The newer exporter's scaled_dot_product_attention: keys turned in three axes, half of the scale on either side, a guard."""
    turn = (
        "dims = Shape(k4) lead = Slice(dims, v0, v2) length = Slice(dims, v2, v3) rows = Concat<axis=0>(minus1, length, v8)"
        " k3 = Reshape(k4, rows) kt = Transpose<perm=[0,2,1]>(k3) back = Concat<axis=0>(lead, v8, length) k = Reshape(kt, back) "
    )
    return (
        f"g (float[N,S,32] x, bool[N,1,S,S] mask{weights('wq', 'wk', 'wv')}) => (float[N,S,32] y) {{ {NUMBERS}{project('q', 'k', 'v')}"
        f"{split('qp', 'q')}{split('kp', 'k4')}{split('vp', 'v')}{turn}qs = Mul(q, half_root) ks = Mul(k, half_root)"
        f" raw = MatMul(qs, ks) bias = Where(mask, zero, {hidden}) s = Add(raw, bias) {softmax('s', 'a', guarded=True)}"
        f"o = MatMul(a, v) {join('o', 'y')}}}"
    )


def packed(select: str) -> str:
    """One projection for queries, keys and values (ViT, SVTR): (N, S, 3, 4, 8), then each of the three is selected."""
    selected = {
        "Gather": "q = Gather<axis=0>(t, i0) k = Gather<axis=0>(t, i1) v = Gather<axis=0>(t, i2) ",
        "Slice": "".join(
            f"{name}_1 = Slice(t, v{at}, v{at + 1}, v0) {name} = Squeeze({name}_1, v0) " for at, name in enumerate("qkv")
        ),
        "Split": "q_1, k_1, v_1 = Split<axis=0, num_outputs=3>(t) q = Squeeze(q_1, v0) k = Squeeze(k_1, v0) v = Squeeze(v_1, v0) ",
    }[select]
    return (
        f"g (float[N,S,32] x{weights('w', columns=96)}) => (float[N,S,32] y) {{ {NUMBERS}five = Constant<value_ints=[0,-1,3,4,8]>()"
        f" p = MatMul(x, w) r = Reshape(p, five) t = Transpose<perm=[2,0,3,1,4]>(r) {selected}qs = Mul(q, eighth)"
        f" kt = Transpose<perm=[0,1,3,2]>(k) s = MatMul(qs, kt) {softmax('s', 'a')}o = MatMul(a, v) {join('o', 'y')}}}"
    )


POSITIONS = (
    "queries = Shape<start=1,end=2>(x) count = Squeeze(queries) pasts = Shape<start=2,end=3>(past_key) before = Squeeze(pasts)"
    " total = Add(count, before) r0 = Range(i0, count, i1) rows1 = Add(r0, before) columns1 = Range(i0, total, i1)"
    " row_axes = Constant<value_ints=[0,1,3]>() column_axes = Constant<value_ints=[0,1,2]>()"
    " rows = Unsqueeze(rows1, row_axes) columns = Unsqueeze(columns1, column_axes) causal = LessOrEqual(columns, rows) "
)


def with_past(mask: str = "", inputs: str = "") -> str:
    """GPT-2: keys and values of the past before the new ones, all of them outputs again. `mask` makes `visible` of `causal`."""
    visible = "visible" if mask else "causal"
    return (
        f"g (float[N,S,32] x, float[N,4,P,8] past_key, float[N,4,P,8] past_value{inputs}{weights('wq', 'wk', 'wv')})"
        f" => (float[N,S,32] y, float[N,4,T,8] key, float[N,4,T,8] value) {{ {NUMBERS}{POSITIONS}{mask}{project('q', 'k', 'v')}"
        f"{split('qp', 'q')}{split('kp', 'kn')}{split('vp', 'vn')}key = Concat<axis=-2>(past_key, kn)"
        f" value = Concat<axis=2>(past_value, vn) kt = Transpose<perm=[0,1,3,2]>(key) raw = MatMul(q, kt) scaled = Mul(raw, eighth)"
        f" bias = Where({visible}, zero, lowest) s = Add(scaled, bias) {softmax('s', 'a')}o = MatMul(a, value) {join('o', 'y')}}}"
    )


def table_positions(size: int = 12) -> str:
    """`causal` as the older exporter has it for GPT-2: a triangle of bytes, cut to the rows after the past and to all columns."""
    triangle = ", ".join(str(int(column <= row)) for row in range(size) for column in range(size))
    return (
        f"queries = Shape<start=1,end=2>(x) pasts = Shape<start=2,end=3>(past_key) total = Add(queries, pasts)"
        f" table = Constant<value = uint8[1,1,{size},{size}] {{{triangle}}}>() first = Sub(total, queries)"
        f" rows = Slice(table, first, total, v2, v1) both = Slice(rows, v0, total, v3, v1) causal = Cast<to=9>(both) "
    )


PADDING = (
    "seen = Cast<to=9>(mask) pad_axes = Constant<value_ints=[1,2]>() padding = Unsqueeze(seen, pad_axes)"
    " visible = And(causal, padding) "
)


def rotated(source: str, result: str) -> str:
    """x·cos + turned(x)·sin, with the second half of the features before the first, negated."""
    return (
        f"{result}_lo = Slice({source}, v0, v4, v3) {result}_hi = Slice({source}, v4, end, v3) {result}_neg = Neg({result}_hi)"
        f" {result}_turned = Concat<axis=-1>({result}_neg, {result}_lo) {result}_c = Mul({source}, cos)"
        f" {result}_s = Mul({result}_turned, sin) {result} = Add({result}_c, {result}_s) "
    )


ANGLES = (
    "position = Cast<to=1>(ids) angle_axes = Constant<value_ints=[2]>() p3 = Unsqueeze(position, angle_axes)"
    " frequencies = Constant<value_floats=[1.0, 0.3, 0.1, 0.03]>() angles = Mul(p3, frequencies)"
    " both = Concat<axis=-1>(angles, angles) cos3 = Cos(both) sin3 = Sin(both) cos = Unsqueeze(cos3, v1) sin = Unsqueeze(sin3, v1) "
)


def repeated(source: str, result: str) -> str:
    """(N, 2, T, 8) to (N, 4, T, 8): each head twice."""
    return (
        f"{result}_u = Unsqueeze({source}, v2) {result}_d = Shape({result}_u) {result}_n = Slice({result}_d, v0, v1)"
        f" {result}_l = Slice({result}_d, v3, v4) {result}_e = Concat<axis=0>({result}_n, v2, v2, {result}_l, v8)"
        f" {result}_x = Expand({result}_u, {result}_e) {result}_f = Concat<axis=0>({result}_n, v4, {result}_l, v8)"
        f" {result} = Reshape({result}_x, {result}_f) "
    )


def llama(batch: str = "N") -> str:
    """Four query heads that share two key heads, turned by their positions, with a past and a mask."""
    return (
        f"g (float[N,S,32] x, int64[{batch},S] ids, bool[N,1,S,T] mask, float[N,2,P,8] past_key, float[N,2,P,8] past_value"
        f"{weights('wq')}{weights('wk', 'wv', columns=16)})"
        f" => (float[N,S,32] y, float[N,2,T,8] key, float[N,2,T,8] value) {{ {NUMBERS}two = Constant<value_ints=[0,0,2,8]>() {ANGLES}"
        f"{project('q', 'k', 'v')}{split('qp', 'q4')}{split('kp', 'k4').replace('apart', 'two')}{split('vp', 'vn').replace('apart', 'two')}"
        f"{rotated('q4', 'q')}{rotated('k4', 'kn')}key = Concat<axis=2>(past_key, kn) value = Concat<axis=2>(past_value, vn)"
        f" {repeated('key', 'kr')}{repeated('value', 'v')}kt = Transpose<perm=[0,1,3,2]>(kr) raw = MatMul(q, kt)"
        f" scaled = Mul(raw, eighth) bias = Where(mask, zero, lowest) s = Add(scaled, bias) {softmax('s', 'a')}"
        f"o = MatMul(a, v) {join('o', 'y')}}}"
    )


def cross_attention() -> str:
    """Whisper and BART of old: the query is scaled before its heads are split; batch and heads are one axis, apart for the mask alone."""

    def heads(source: str, result: str) -> str:
        return f"{split(source, result + '_4')}{result}_d = Shape({source}) {result}_l = Slice({result}_d, v1, v2) " + (
            f"{result}_n = Concat<axis=0>(minus1, {result}_l, v8) {result} = Reshape({result}_4, {result}_n) "
        )

    views = (
        "xs = Shape(x) xn = Slice(xs, v0, v1) xl = Slice(xs, v1, v2) el = Slice(kp_d, v1, v2) d4 = Concat<axis=0>(xn, v4, xl, el)"
        " d3 = Concat<axis=0>(minus1, xl, el) o4d = Concat<axis=0>(xn, v4, xl, v8) "
    )
    return (
        f"g (float[N,S,32] x, float[N,E,32] encoded, float[N,1,S,E] mask{weights('wq', 'wk', 'wv')}) => (float[N,S,32] y) {{ {NUMBERS}"
        f"qp0 = MatMul(x, wq) qp = Mul(qp0, eighth) {project('k', 'v', source='encoded')}{heads('qp', 'q')}{heads('kp', 'k')}"
        f"{heads('vp', 'v')}kp_d = Shape(kp) {views}kt = Transpose<perm=[0,2,1]>(k) raw = MatMul(q, kt) raw4 = Reshape(raw, d4)"
        f" masked = Add(raw4, mask) s = Reshape(masked, d3) {softmax('s', 'a')}o3 = MatMul(a, v) o = Reshape(o3, o4d) {join('o', 'y')}}}"
    )


def sequence_first() -> str:
    """PyTorch's MultiheadAttention: (S, N, 32) outside, (N·4, S, 8) inside."""

    def heads(name: str) -> str:
        return f"{name}r = Reshape({name}p, rows) {name} = Transpose<perm=[1,0,2]>({name}r) "

    sizes = (
        "xs = Shape(x) xl = Slice(xs, v0, v1) xn = Slice(xs, v1, v2) groups = Mul(xn, v4) rows = Concat<axis=0>(xl, groups, v8)"
        " all = Concat<axis=0>(xl, xn, v32) "
    )
    return (
        f"g (float[S,N,32] x{weights('wq', 'wk', 'wv')}) => (float[S,N,32] y) {{ {NUMBERS}{sizes}{project('q', 'k', 'v')}"
        f"{heads('q')}{heads('k')}{heads('v')}kt = Transpose<perm=[0,2,1]>(k) raw = MatMul(q, kt) s = Mul(raw, eighth)"
        f" {softmax('s', 'a')}o = MatMul(a, v) t = Transpose<perm=[1,0,2]>(o) y = Reshape(t, all) }}"
    )
