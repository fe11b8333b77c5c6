import itertools
import math
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evenhand.errors import InputError
from evenhand.welfare import (
    GGF,
    KNOWN,
    AlphaFair,
    Leximin,
    Maximin,
    Nash,
    RegularizedMaximin,
    Utilitarian,
    Welfare,
    welfare,
)
from models import unchecked

TEXTS = (
    "ggf",
    "ggf:10",
    "ggf:0.5,0.3,0.2",
    "utilitarian",
    "maximin",
    "regularized-maximin:0.01",
    "leximin",
    "leximin:50",
    "nash",
    "alpha:0",
    "alpha:0.5",
    "alpha:1",
    "alpha:2",
)
FOR_THREE = [welfare(text, 3) for text in TEXTS]
every_welfare = pytest.mark.parametrize("w", FOR_THREE, ids=lambda w: w.name)


def vector(D, low=-100.0, high=100.0):
    return arrays(np.float64, D, elements=st.floats(low, high, allow_subnormal=False))


@st.composite
def ggf_and(draw, vectors=1, max_D=6):
    """A GGF with arbitrary weights, and some vectors for it."""
    D = draw(st.integers(1, max_D))
    raw = draw(vector(D, 0, 1))
    assume(raw.sum() > 1e-6)
    return GGF(np.sort(raw)[::-1]), *(draw(vector(D)) for _ in range(vectors))


def close(x):
    return pytest.approx(x, rel=1e-9, abs=1e-9)


# Golden values, worked out by hand.


def test_ggf_by_hand():
    ggf = GGF([2, 1])
    assert ggf.weights.tolist() == [2 / 3, 1 / 3]
    assert ggf.value([3, 0]) == close(1)
    assert ggf.value([0, 2]) == close(2 / 3)
    assert ggf.value([1.2, 1.2]) == close(1.2)
    # The paper's Example 3.2: (12, 5) beats (7, 7) under (5/9, 4/9), but not under (4/5, 1/5).
    assert GGF([5, 4]).value([[7, 7], [12, 5]]).tolist() == close([7, 73 / 9])
    assert GGF([4, 1]).value([[7, 7], [12, 5]]).tolist() == close([7, 6.4])


def test_ggf_gradient_by_hand():
    ggf = GGF([0.5, 0.3, 0.2])
    assert ggf.gradient([7, 1, 4]).tolist() == [0.2, 0.5, 0.3]
    assert ggf.gradient([[1, 1, 1], [2, 1, 1], [1, 2, 1], [0.0, -0.0, -1]]).tolist() == [
        [0.5, 0.3, 0.2],
        [0.2, 0.5, 0.3],
        [0.5, 0.2, 0.3],
        [0.3, 0.2, 0.5],
    ]


def test_special_weights():
    assert GGF.geometric(3).weights.tolist() == close([4 / 7, 2 / 7, 1 / 7])
    assert GGF.geometric(2, ratio=9).weights.tolist() == close([0.9, 0.1])
    assert Utilitarian(4).weights.tolist() == [0.25] * 4
    assert Maximin(3).weights.tolist() == [1, 0, 0]
    assert RegularizedMaximin(3, 0.5).weights.tolist() == [0.5, 0.25, 0.25]
    assert all(isinstance(w, GGF) for w in (Utilitarian(2), Maximin(2), RegularizedMaximin(2, 0.1)))
    assert not isinstance(Leximin(2), GGF)
    assert RegularizedMaximin(3, 0) == Maximin(3)
    assert RegularizedMaximin(3, 1) == Utilitarian(3) == GGF.geometric(3, 1)


@pytest.mark.parametrize(
    ("text", "value", "gradient"),
    [
        ("utilitarian", 11 / 3, [1 / 3, 1 / 3, 1 / 3]),
        ("maximin", 1, [0, 1, 0]),
        ("regularized-maximin:0.5", (1 + 0.5 * 10) / 2, [0.25, 0.5, 0.25]),
        ("nash", math.log(16) / 3, [1 / 6, 1 / 3, 1 / 24]),
        ("alpha:0", 11 / 3, [1 / 3, 1 / 3, 1 / 3]),
        ("alpha:1", math.log(16) / 3, [1 / 6, 1 / 3, 1 / 24]),
        ("alpha:2", -(1 / 2 + 1 + 1 / 8) / 3, [1 / 12, 1 / 3, 1 / 192]),
        ("alpha:0.5", 2 * (2**0.5 + 1 + 8**0.5) / 3, [2**-0.5 / 3, 1 / 3, 8**-0.5 / 3]),
    ],
)
def test_values_and_gradients_at_2_1_8(text, value, gradient):
    w = welfare(text, 3)
    assert w.value([2, 1, 8]) == close(value)
    assert w.gradient([2, 1, 8]).tolist() == close(gradient)


def test_alpha_zero_takes_negative_returns():
    assert AlphaFair(2, 0).value([-3, 1]) == -1
    assert AlphaFair(2, 0).gradient([-3, 1]).tolist() == [0.5, 0.5]
    assert not AlphaFair(2, 0).needs_positive
    assert AlphaFair(2, 0.1).needs_positive
    assert Nash(2).needs_positive
    assert not any(w.needs_positive for w in (GGF([1]), Utilitarian(2), Leximin(2)))


# Leximin.


def test_leximin_by_hand():
    order = Leximin(3)
    assert order.key([3, 1, 2]).tolist() == [1, 2, 3]
    assert order.prefers([2, 2, 2], [1, 9, 9])
    assert order.prefers([9, 1, 3], [1, 2, 100])
    assert not order.prefers([1, 2, 3], [3, 2, 1])
    assert order.prefers([[1, 1, 2], [1, 1, 1]], [1, 1, 1]).tolist() == [True, False]
    # A difference that no finite ratio sees next to the large gain of the best-off user.
    u, v = [1 + 1e-12, 1, 1], [1, 1, 1e9]
    assert order.value(v) > order.value(u)
    assert order.prefers(v, u)
    assert order.prefers([1 + 1e-12, 1 + 1e-12, 2], [1, 1e9, 1e9])


@pytest.mark.parametrize("D", [16, 200])
def test_leximin_of_many_users(D):
    order = Leximin(D)
    u, v = np.ones(D), np.ones(D)
    u[-1] = np.nextafter(1, 2)
    assert order.prefers(u, v)
    assert not order.prefers(v, u)
    assert order.prefers(v * 1e308, -v * 1e308)  # a difference would overflow
    assert order.value(v) == close(1)
    assert order.gradient(v).sum() == close(1)
    assert welfare(order.name, D) == order


@given(st.integers(1, 5).flatmap(lambda D: st.tuples(*[arrays(np.float64, D, elements=st.integers(0, 3))] * 2)))
def test_leximin_is_the_order_of_sorted_tuples(pair):
    u, v = pair
    order = Leximin(len(u))
    assert order.prefers(u, v) == (sorted(u) > sorted(v))
    assert tuple(order.key(u)) == tuple(sorted(u))
    # On a grid of four levels the scalar stand-in gives the same order.
    assert (order.value(u) > order.value(v) + 1e-15) == order.prefers(u, v)


# Properties of the generalized Gini function.


@given(ggf_and(2), st.randoms(use_true_random=False))
def test_ggf_symmetric_and_monotone(case, random):
    ggf, v, gain = case
    shuffled = v.tolist()
    random.shuffle(shuffled)
    assert ggf.value(shuffled) == ggf.value(v)
    assert ggf.value(v + np.abs(gain)) >= ggf.value(v) - 1e-9


@given(ggf_and(), st.data())
def test_ggf_pigou_dalton(case, data):
    ggf, v = case
    rich, poor = int(np.argmax(v)), int(np.argmin(v))
    given_away = data.draw(st.floats(0, 1)) * (v[rich] - v[poor])
    after = v.copy()
    after[rich] -= given_away
    after[poor] += given_away
    assert ggf.value(after) >= ggf.value(v) - 1e-9


def test_strict_weights_prefer_every_transfer_strictly():
    ggf = GGF.geometric(3)
    assert ggf.value([2, 2, 2]) > ggf.value([1, 2, 3]) > ggf.value([0, 2, 4])


@given(ggf_and(2), st.floats(0, 1))
def test_ggf_concave_superadditive_lipschitz(case, part):
    ggf, u, v = case
    mixed = ggf.value(part * u + (1 - part) * v)
    assert mixed >= part * ggf.value(u) + (1 - part) * ggf.value(v) - 1e-9
    assert ggf.value(u + v) >= ggf.value(u) + ggf.value(v) - 1e-9
    assert abs(ggf.value(u) - ggf.value(v)) <= np.abs(u - v).max() + 1e-9


@given(ggf_and(), st.floats(0, 100), st.floats(-100, 100))
def test_ggf_homogeneous_equivariant_and_bounded(case, scale, shift):
    ggf, v = case
    assert ggf.value(scale * v) == close(scale * ggf.value(v))
    assert ggf.value(v + shift) == close(ggf.value(v) + shift)
    assert v.min() - 1e-9 <= ggf.value(v) <= v.mean() + 1e-9


@given(ggf_and(max_D=5))
def test_ggf_is_the_minimum_over_permutations(case):
    ggf, v = case
    assert ggf.value(v) == close(min(np.dot(w, v) for w in itertools.permutations(ggf.weights)))


@given(ggf_and())
def test_ggf_is_a_weighted_sum_of_lorenz_components(case):
    ggf, v = case
    steps = ggf.weights - np.append(ggf.weights[1:], 0)
    assert ggf.value(v) == close(steps @ np.cumsum(np.sort(v)))


@given(ggf_and(2))
def test_ggf_linear_program(case):
    """Σ_k (w_k − w_{k+1})(k t_k − Σ_i max(t_k − v_i, 0)) is the GGF at t = v↑ and nowhere more."""
    ggf, v, t = case
    steps = ggf.weights - np.append(ggf.weights[1:], 0)

    def objective(t):
        return steps @ (np.arange(1, ggf.D + 1) * t - np.maximum(t[:, None] - v, 0).sum(axis=1))

    assert objective(np.sort(v)) == close(ggf.value(v))
    assert objective(t) <= ggf.value(v) + 1e-9


@given(ggf_and(2))
def test_ggf_gradient_is_a_supergradient(case):
    ggf, u, v = case
    g = ggf.gradient(v)
    assert sorted(g, reverse=True) == ggf.weights.tolist()
    assert g @ v == close(ggf.value(v))
    assert ggf.value(u) <= ggf.value(v) + g @ (u - v) + 1e-9


# Properties of every welfare function.


@every_welfare
@settings(max_examples=40)
@given(u=vector(3, 0.1, 10), v=vector(3, 0.1, 10), part=st.floats(0, 1))
def test_every_welfare_is_fair(w, u, v, part):
    slack = 1e-9 * (1 + abs(w.value(u)) + abs(w.value(v)))
    assert w.value(u[[2, 0, 1]]) == close(w.value(u))
    assert w.value(u + v) >= w.value(u) - slack
    mixed = part * u + (1 - part) * v
    assert w.value(mixed) >= part * w.value(u) + (1 - part) * w.value(v) - slack
    assert w.value(u) <= w.value(v) + w.gradient(v) @ (u - v) + 100 * slack
    assert (w.gradient(v) >= 0).all()
    # A step towards equality is never worse: Pigou–Dalton for the richest and the poorest.
    even = u.copy()
    even[[u.argmin(), u.argmax()]] = (u.min() + u.max()) / 2
    assert w.value(even) >= w.value(u) - slack


@every_welfare
def test_batches_are_taken_row_by_row(w):
    v = np.random.default_rng(0).uniform(0.5, 2, (4, 5, 3))
    assert w.value(v).shape == (4, 5)
    assert w.gradient(v).shape == (4, 5, 3)
    assert w.value(v)[2, 3] == close(w.value(v[2, 3]))
    assert w.gradient(v)[2, 3].tolist() == close(w.gradient(v[2, 3]).tolist())
    assert w.value(np.zeros((0, 3))).shape == (0,)


@every_welfare
def test_inputs_are_left_alone(w):
    v = np.array([3.0, 1.0, 2.0])
    w.value(v)
    w.gradient(v)[:] = 0
    assert v.tolist() == [3, 1, 2]
    assert w.value(np.array([3, 1, 2], dtype=np.int8)) == w.value(v) == w.value((3, 1, 2))
    assert w.value(v.astype(np.float32)).dtype == np.float64


# JAX.


@every_welfare
def test_jax_agrees_with_numpy(w):
    v = np.random.default_rng(1).uniform(0.5, 2, (5, 3))
    v[0] = 1.0, 1.0, 0.5  # ties are broken alike
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        x = jnp.asarray(v)
        for value, gradient in (
            (w.value(x), w.gradient(x)),
            (jax.jit(w.value)(x), jax.jit(w.gradient)(x)),
            (jax.vmap(w.value)(x), jax.vmap(w.gradient)(x)),
        ):
            assert isinstance(value, jax.Array)
            assert value.dtype == gradient.dtype == np.float64
            np.testing.assert_allclose(value, w.value(v), rtol=1e-12)
            np.testing.assert_allclose(gradient, w.gradient(v), rtol=1e-12)
        derivative = jax.jit(jax.vmap(jax.grad(w.value)))(x)
        np.testing.assert_allclose(derivative, w.gradient(v), rtol=1e-9)


@every_welfare
def test_jax_keeps_precision_and_takes_whole_numbers_and_lists(w):
    v = np.array([3.0, 1.0, 2.0])
    assert w.value(jnp.asarray(v, dtype=jnp.float32)).dtype == np.float32
    assert w.gradient(jnp.asarray(v, dtype=jnp.bfloat16)).dtype == jnp.bfloat16
    np.testing.assert_allclose(w.value(jnp.array([3, 1, 2])), w.value(v), rtol=1e-5)
    np.testing.assert_allclose(w.gradient(jnp.array([3, 1, 2])), w.gradient(v), rtol=1e-5)
    from_list = jax.jit(lambda a: w.value([a, 1.0, 2 * a / 3]))(3.0)
    np.testing.assert_allclose(from_list, w.value(v), rtol=1e-5)


def test_ggf_gradient_is_the_derivative():
    v = np.random.default_rng(2).normal(size=(200, 7))  # no ties
    ggf = GGF.geometric(7, 3)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.vmap(jax.grad(ggf.value))(jnp.asarray(v)), ggf.gradient(v))


def test_leximin_in_jax():
    order = Leximin(3)
    prefers = jax.jit(order.prefers)
    assert prefers(jnp.array([9.0, 1, 3]), jnp.array([1.0, 2, 100]))
    assert order.prefers(np.array([9.0, 1, 3]), jnp.array([1.0, 2, 100]))
    assert order.key(jnp.array([3, 1, 2])).tolist() == [1, 2, 3]


def test_jax_returns_what_the_formula_gives():
    assert Nash(2).value(jnp.array([0.0, 1.0])) == -np.inf
    assert np.isnan(Nash(2).value(jnp.array([-1.0, 1.0])))


def test_jax_shapes_are_checked():
    with pytest.raises(InputError, match=r"v must have 3 entries along its last axis, one per user, not 2"):
        jax.jit(GGF.geometric(3).value)(jnp.ones((4, 2)))


def test_jax_is_not_imported():
    code = "import sys; from evenhand.welfare import Nash; Nash(2).value([1, 2]); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Text.


@every_welfare
def test_names_are_read_back(w):
    assert isinstance(w, Welfare)
    again = welfare(w.name, w.D)
    assert again == w
    assert hash(again) == hash(w)
    assert again.name == w.name
    assert type(again) is type(w)
    assert welfare(w, 3) is w
    assert pickle.loads(pickle.dumps(w)) == w  # noqa: S301 - its own pickle
    assert len({w, again}) == 1


@given(ggf_and(0))
def test_any_weights_are_read_back_exactly(case):
    (ggf,) = case
    assert welfare(ggf.name, ggf.D) == ggf
    assert ggf.weights.sum() == close(1)


@given(st.floats(1, 1e300), st.floats(0, 1), st.floats(0, 1e300))
def test_any_parameter_is_read_back_exactly(ratio, eps, alpha):
    for w in (GGF.geometric(3, ratio), Leximin(3, ratio), RegularizedMaximin(3, eps), AlphaFair(3, alpha)):
        again = welfare(w.name, 3)
        assert again == w
        assert again.name == w.name


@pytest.mark.parametrize(
    "w",
    [
        GGF([0.9999999999999999]),
        GGF([1e-300]),
        GGF([5e-324, 5e-324]),
        GGF([1, 1e-17]),
        AlphaFair(2, 2**53 + 1),
        Leximin(2, 2**53 + 1),
        GGF.geometric(1, 7),
    ],
    ids=lambda w: w.name,
)
def test_odd_numbers_are_read_back(w):
    assert welfare(w.name, w.D) == w


def test_texts():
    assert [w.name for w in FOR_THREE] == ["ggf:2", *TEXTS[1:]]
    assert welfare(" GGF:10 ", 4) == GGF.geometric(4, 10)
    assert welfare("Nash", 4) == Nash(4)
    assert welfare("ggf:1e1", 4) == welfare("ggf:10", 4)
    assert welfare("ggf:5, 4", 2) == GGF([5, 4])
    assert welfare("leximin", 2) == Leximin(2, 1000)
    assert {known.partition(":")[0] for known, _ in KNOWN} == {t.partition(":")[0] for t in TEXTS}


def test_equality_and_repr():
    assert GGF([1, 1]) == Utilitarian(2)
    assert GGF([2, 1]) == GGF.geometric(2)
    assert GGF([2, 1]) != GGF([3, 1])
    assert GGF([1, 1]) != AlphaFair(2, 0)
    assert AlphaFair(2, 2) == AlphaFair(2, 2.0)
    assert repr(GGF([0.5, 0.5])) == "welfare('ggf:0.5,0.5', 2)"
    assert repr(Maximin(2)) == "welfare('maximin', 2)"
    assert repr(AlphaFair(2, 2.0)) == "AlphaFair(D=2, alpha=2.0)"


def test_frozen():
    weights = np.array([2.0, 1.0])
    ggf = GGF(weights)
    weights[0] = 7
    assert ggf.weights.tolist() == [2 / 3, 1 / 3]
    with pytest.raises(ValueError, match="read-only"):
        ggf.weights[0] = 1
    for w, field in ((ggf, "name"), (Maximin(2), "weights"), (Nash(2), "D"), (AlphaFair(2, 1), "alpha")):
        with pytest.raises(AttributeError, match="cannot assign"):
            setattr(w, field, 3)


# Errors.


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], r"weights must be a list of one number per user, but have the shape \(0,\)"),
        (0.5, r"weights must be a list of one number per user, but have the shape \(\)"),
        ([[1, 0]], r"weights must be a list .* shape \(1, 2\)"),
        ([1, -0.5], "weights must not be negative, but the smallest is -0.5"),
        ([3, 1, 2], r"weights must not increase, .* but weight 3 \(2\) is larger than weight 2 \(1\)"),
        ([0, 0], "weights must have a positive and finite sum, not 0"),
        ([1e308, 1e308], "weights must have a positive and finite sum, not inf"),
        ([1, np.nan], "weights must hold finite numbers, but one of them is nan"),
        ([np.inf, 1], "weights must hold finite numbers, but one of them is inf"),
        (["a", "b"], "weights must hold real numbers, not <U1 values"),
        ([1 + 1j], "weights must hold real numbers, not complex128 values"),
        ([[1], [1, 2]], "weights cannot be read as an array of numbers"),
    ],
)
def test_unusable_weights(weights, message):
    with pytest.raises(InputError, match=message):
        GGF(weights)


@pytest.mark.parametrize("D", [0, -1, True, 2.5, "3", None])
@pytest.mark.parametrize(
    "make",
    [
        GGF.geometric,
        Utilitarian,
        Maximin,
        lambda D: RegularizedMaximin(D, 0.1),
        Leximin,
        Nash,
        lambda D: AlphaFair(D, 2),
        lambda D: welfare("nash", D),
    ],
)
def test_unusable_dimensions(make, D):
    with (
        unchecked(),
        pytest.raises(InputError, match=f"number of users, must be a whole .*at least 1, not {D!r}"),
    ):
        make(D)


def test_unusable_parameters():
    for ratio in (0.5, -1, math.inf, math.nan, 10**400):
        for make in (GGF.geometric, Leximin):
            with pytest.raises(InputError, match=f"must be at least 1 and finite, not {ratio}"):
                make(3, ratio)
    for eps in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match=f"eps, .* must lie between 0 and 1, not {eps}"):
            RegularizedMaximin(3, eps)
    for alpha in (-1, math.inf, math.nan, 10**400):
        with pytest.raises(InputError, match=f"alpha must be at least 0 and finite, not {alpha}"):
            AlphaFair(3, alpha)


@every_welfare
@pytest.mark.parametrize(
    ("v", "message"),
    [
        ([1, 2], r"v must have 3 entries along its last axis, one per user, not 2 \(shape \(2,\)\)"),
        (
            np.ones((3, 4)),
            r"v must have 3 entries along its last axis, one per user, not 4 \(shape \(3, 4\)\)",
        ),
        (1.0, r"v must have 3 entries along its last axis, one per user, not a single number"),
        ([1, np.nan, 2], "v must hold finite numbers, but one of them is nan"),
        ([1, np.inf, 2], "v must hold finite numbers, but one of them is inf"),
        (["a", "b", "c"], "v must hold real numbers"),
        ([[1, 2, 3], [1]], "v cannot be read as an array of numbers"),
    ],
)
def test_unusable_returns(w, v, message):
    for function in (w.value, w.gradient):
        with pytest.raises(InputError, match=message):
            function(v)


@pytest.mark.parametrize("w", [Nash(2), AlphaFair(2, 0.5), AlphaFair(2, 1), AlphaFair(2, 3)])
def test_returns_that_are_not_positive(w):
    for function in (w.value, w.gradient):
        with pytest.raises(InputError, match="needs positive returns, but the smallest is -2"):
            function([[1, 0], [3, -2]])
        with pytest.raises(InputError, match="needs positive returns, but the smallest is 0"):
            function([1, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nahs", "unknown welfare 'nahs': did you mean 'nash'\\? Known are ggf, ggf:RATIO, ggf:W1,W2"),
        ("regularised-maximin:0.1", "did you mean 'regularized-maximin'"),
        ("xyz", "unknown welfare 'xyz': known are ggf, .*alpha:ALPHA"),
        ("", "unknown welfare ''"),
        ("ggf:", "'' in the welfare 'ggf:' is not a number"),
        ("ggf:two", "'two' in the welfare 'ggf:two' is not a number"),
        ("ggf:1,", "'1,' in the welfare 'ggf:1,' is not a number"),
        ("ggf:0.5", "must be at least 1 and finite, not 0.5"),
        ("ggf:0.5,0.5", "the welfare 'ggf:0.5,0.5' has 2 weights, but there are 3 users"),
        ("ggf:1,2,3", "weights must not increase"),
        ("nash:2", "the welfare 'nash' is written nash, not 'nash:2'"),
        ("alpha", "the welfare 'alpha' is written alpha:ALPHA, not 'alpha'"),
        ("regularized-maximin", "is written regularized-maximin:EPS, not 'regularized-maximin'"),
        ("leximin:1,2", "the welfare 'leximin' is written leximin or leximin:RATIO, not 'leximin:1,2'"),
        ("alpha:nan", "alpha must be at least 0 and finite, not nan"),
    ],
)
def test_unusable_texts(text, message):
    with pytest.raises(InputError, match=message):
        welfare(text, 3)


def test_unusable_welfares():
    with pytest.raises(InputError, match="the welfare ggf:2 is for 2 users, but there are 3"):
        welfare(GGF.geometric(2), 3)
    with (
        unchecked(),
        pytest.raises(InputError, match="a welfare is a text such as 'ggf' or a welfare function, not 7"),
    ):
        welfare(7, 3)
