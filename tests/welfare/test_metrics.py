import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from evenhand import metrics
from evenhand.errors import InputError

amounts = st.floats(0, 1e6, allow_subnormal=False)
SHARES = arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=6), elements=amounts)
ANY = arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=6), elements=st.floats(-1e6, 1e6))


# By hand: (1, 3) has mean 2 and deviation 1; (0, 0, 0, 8) has mean 2 and deviation √12.
@pytest.mark.parametrize(
    ("v", "cv", "gini", "jain"),
    [
        ([1, 3], 1 / 2, 1 / 4, 16 / 20),
        ([0, 0, 0, 8], 3**0.5, 3 / 4, 1 / 4),
        ([4, 1, 1], 2**0.5 / 2, 1 / 3, 36 / 54),
        ([5, 5, 5], 0, 0, 1),
        ([0.1, 0.1, 0.1], 0, 0, 1),
        ([0, 0], 0, 0, 1),
        ([7], 0, 0, 1),
        ([1e-200, 3e-200], 1 / 2, 1 / 4, 16 / 20),
        ([1e200, 3e200], 1 / 2, 1 / 4, 16 / 20),
    ],
)
def test_golden_values(v, cv, gini, jain):
    assert metrics.cv(v) == pytest.approx(cv)
    assert metrics.gini(v) == pytest.approx(gini)
    assert metrics.jain(v) == pytest.approx(jain)


def test_equal_values_have_exactly_no_spread():
    for v in ([0.1] * 3, [-0.7] * 7, [0.0] * 4):
        assert metrics.cv(v) == 0
        assert metrics.jain(v) == 1


def test_cv_of_negative_and_zero_means():
    assert metrics.cv([-1, -3]) == pytest.approx(1 / 2)
    assert metrics.cv([-1, 1]) == np.inf
    assert metrics.cv([[-1, 1], [0, 0], [1, 3]]).tolist() == pytest.approx([np.inf, 0, 0.5])


def test_extremes():
    v = [[3, -1, 2], [0, 5, 5]]
    assert metrics.minimum(v).tolist() == [-1, 0]
    assert metrics.maximum(v).tolist() == [3, 5]


def test_lorenz_by_hand():
    assert metrics.lorenz([3, 1]).tolist() == [0, 1 / 4, 1]
    assert metrics.lorenz([5, 1, 2], generalized=True).tolist() == pytest.approx([0, 1 / 3, 1, 8 / 3])
    assert metrics.lorenz([1, -3], generalized=True).tolist() == [0, -1.5, -1]
    assert metrics.lorenz([[0, 0, 0, 0], [0, 0, 0, 2]]).tolist() == [[0, 0.25, 0.5, 0.75, 1], [0, 0, 0, 0, 1]]


def test_price_of_fairness_by_hand():
    assert metrics.price_of_fairness([12, 5], [7, 7]) == pytest.approx(3 / 17)
    assert metrics.price_of_fairness([-1, -1], [-2, -1]) == pytest.approx(1 / 2)
    assert metrics.price_of_fairness([1, -1], [0, 0]) == 0
    assert metrics.price_of_fairness([1, -1], [-1, 0]) == np.inf
    assert metrics.price_of_fairness([4, 0], [[1, 1], [2, 2]]).tolist() == [0.5, 0]
    assert metrics.price_of_fairness([[4, 0], [2, 0]], [1, 1]).tolist() == [0.5, 0]


@given(SHARES)
def test_indices_against_their_definitions(v):
    D = v.shape[-1]
    total = v.sum(axis=-1)
    pairs = np.abs(v[..., :, None] - v[..., None, :]).sum(axis=(-2, -1))
    assert metrics.gini(v) * (2 * D * total) == pytest.approx(pairs, rel=1e-9, abs=1e-9)
    # The index is one minus twice the area under the Lorenz curve, by trapezia.
    curve = metrics.lorenz(v)
    assert curve.shape == (*v.shape[:-1], D + 1)
    area = (curve[..., 1:] + curve[..., :-1]).sum(axis=-1) / (2 * D)
    assert metrics.gini(v) == pytest.approx(1 - 2 * area, abs=1e-9)
    # Jain's index is 1 / (1 + cv²).
    assert metrics.jain(v) == pytest.approx(1 / (1 + metrics.cv(v) ** 2), rel=1e-9)


@given(SHARES)
def test_indices_stay_in_their_ranges(v):
    D = v.shape[-1]
    assert (metrics.gini(v) >= 0).all()
    assert (metrics.gini(v) <= 1 - 1 / D + 1e-12).all()
    assert (metrics.jain(v) >= 1 / D - 1e-12).all()
    assert (metrics.jain(v) <= 1 + 1e-12).all()
    curve = metrics.lorenz(v)
    assert (curve[..., 0] == 0).all()
    assert (curve[..., -1] == 1).all()
    assert (np.diff(curve) >= 0).all()
    assert (curve <= np.linspace(0, 1, D + 1) + 1e-12).all()


@given(ANY)
def test_generalized_lorenz_curve(v):
    curve = metrics.lorenz(v, generalized=True)
    assert curve[..., -1] == pytest.approx(v.mean(axis=-1), abs=1e-9)
    assert (np.diff(curve, n=2) >= -1e-9).all()  # convex: the richer, the steeper
    assert curve[..., 1] * v.shape[-1] == pytest.approx(metrics.minimum(v))


@given(SHARES, st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_indices_ignore_scale_and_order(v, scale, random):
    order = list(range(v.shape[-1]))
    random.shuffle(order)
    for measure in (metrics.cv, metrics.gini, metrics.jain, metrics.lorenz):
        assert measure(scale * v[..., order]) == pytest.approx(measure(v), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("measure", [metrics.cv, metrics.gini, metrics.jain, metrics.lorenz, metrics.minimum])
@pytest.mark.parametrize(
    ("v", "message"),
    [
        (3.0, r"v needs at least one value along its last axis, but has the shape \(\)"),
        (np.zeros((2, 0)), r"v needs at least one value .* shape \(2, 0\)"),
        ([1, np.nan], "v must hold finite numbers, but one of them is nan"),
        ([np.inf, 1], "v must hold finite numbers, but one of them is inf"),
        ("many", "v must hold real numbers, not <U4 values"),
        ([[1, 2], [3]], "v cannot be read as an array of numbers"),
    ],
)
def test_unusable_values(measure, v, message):
    with pytest.raises(InputError, match=message):
        measure(v)


def test_negative_shares():
    with pytest.raises(InputError, match="the Gini index needs values that are not negative, but the smallest is -2"):
        metrics.gini([[1, 1], [3, -2]])
    with pytest.raises(InputError, match="the Lorenz curve of shares needs values that are not negative"):
        metrics.lorenz([3, -2])


def test_price_of_fairness_errors():
    with pytest.raises(InputError, match=r"utilitarian_returns \(2,\) and fair_returns \(1,\) differ in shape"):
        metrics.price_of_fairness([1, 2], [1])
    with pytest.raises(InputError, match=r"utilitarian_returns \(3, 2\) and fair_returns \(4, 2\) differ"):
        metrics.price_of_fairness(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(InputError, match="fair_returns must hold finite numbers"):
        metrics.price_of_fairness([1, 2], [1, np.nan])


def test_spread():
    found = metrics.spread("goodput", [1, 3])
    expected = {"goodput average": 2, "goodput minimum": 1, "goodput maximum": 3, "goodput CV": 0.5}
    assert found == pytest.approx(expected)
