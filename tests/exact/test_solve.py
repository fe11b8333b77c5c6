"""The exact solver against brute force, against other solvers, and against what must be true of any answer."""

import contextlib
import itertools
import signal
import sys

import cvxpy as cp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import evenhand as eh
from evenhand.exact import examples
from evenhand.exact.lp import solve_ggf_program
from evenhand.exact.scalar import ScalarSolver
from larger_models import agrees, by_interior_point
from models import (
    AVERAGE,
    KINDS,
    UNICHAIN,
    Raw,
    absorbing,
    all_permutations_ggf,
    best_ggf,
    best_leximin,
    best_smooth,
    best_sum,
    best_unichain_average,
    brute_evaluate,
    chain_of,
    communicating,
    corners,
    degenerate,
    dense,
    deterministic,
    distributions,
    ggfs,
    horizon,
    long_run,
    multichain,
    negative,
    periodic,
    question,
    random_ggf,
    raw_models,
    small,
    sparse,
    theta,
    ties,
    unchecked,
    unreachable,
)

GAMMAS = (0.0, 0.5, 0.9, 0.99, 0.9999, AVERAGE)
EPS = 1e-9  # what rounding may cost, as a share of the widest difference that returns can have
GINI = eh.GGF([2, 1])


def scale_of(raw, gamma):
    """What tolerances are a share of: the widest difference that returns can have."""
    return raw.span * horizon(gamma)


def check_policy(raw, policy):
    S, A, _ = raw.sizes
    if isinstance(policy, eh.Mixture):
        assert distributions(policy.shares)
        assert policy.policies.shape == (len(policy.shares), S)
        assert 0 <= policy.policies.min() <= policy.policies.max() < A
    else:
        assert policy.shape == (S, A)
        assert distributions(policy)


def check_answer(raw, solution, gamma, welfare):
    """What must hold whatever the optimum is: the policy is one, and brings what it is said to bring."""
    eps = EPS * scale_of(raw, gamma)
    check_policy(raw, solution.policy)
    assert solution.gap >= 0
    assert np.isfinite(solution.gap)
    assert solution.returns == pytest.approx(brute_evaluate(raw, solution.policy, gamma), abs=eps, rel=0)
    again = eh.evaluate(raw.model(), solution.policy, **question(gamma))
    assert again == pytest.approx(solution.returns, abs=eps, rel=0)
    assert solution.welfare == float(welfare.value(solution.returns))
    assert bool(solution.note) == isinstance(solution.policy, eh.Mixture)


def check_ggf(raw, solution, gamma, welfare, best):
    """The gap is honest; and small, unless the linear program met a model that needs a mixture."""
    check_answer(raw, solution, gamma, welfare)
    eps = EPS * scale_of(raw, gamma)
    assert solution.welfare <= best + eps
    assert solution.welfare + solution.gap >= best - eps
    assert distributions(solution.weights)
    if solution.status == "optimal":
        assert solution.gap <= 1.001e-8 * scale_of(raw, gamma)
    else:
        assert solution.status == "stalled"
        assert solution.gap <= EPS * scale_of(raw, gamma) or (gamma == AVERAGE and solution.method == "lp")


# The tests' own tools


def test_the_brute_force_itself():
    rng = np.random.default_rng(0)
    for D in range(1, 6):
        v, w = rng.normal(size=(1, D)), np.sort(rng.dirichlet(np.ones(D)))[::-1]
        assert best_ggf(v, w) == pytest.approx(all_permutations_ggf(w, v[0]), abs=1e-9)
    assert best_ggf(np.array([[3.0, 0], [0, 2]]), np.array([2, 1]) / 3) == pytest.approx(1.2, abs=1e-9)
    assert best_leximin(np.array([[3.0, 0], [0, 2]])) == pytest.approx([1.2, 1.2], abs=1e-9)
    assert best_leximin(np.array([[1.0, 5, 2], [1, 2, 4]])) == pytest.approx([1, 3.2, 3.2], abs=1e-9)
    value, bound = best_smooth(np.array([[4.0, 1], [1, 4]]), eh.Nash(2))
    assert value == pytest.approx(np.log(2.5), abs=1e-9)
    assert bound == pytest.approx(value, abs=1e-9)
    assert long_run(np.array([[0.0, 1], [1, 0]])) == pytest.approx(np.full((2, 2), 0.5))
    assert long_run(np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0, 0, 1]]))[0] == pytest.approx([0, 0.5, 0.5])


# Worked examples


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_one_state_needs_a_randomised_choice(method):
    for gamma in (0.0, 0.5, 0.99, AVERAGE):
        solution = eh.solve(examples.one_state(), GINI, method=method, **question(gamma))
        assert solution.policy == pytest.approx(np.array([[0.4, 0.6]]), abs=1e-7)
        assert solution.welfare / horizon(gamma) == pytest.approx(1.2, abs=1e-7)
        assert solution.returns / horizon(gamma) == pytest.approx([1.2, 1.2], abs=1e-7)
        assert solution.weights == pytest.approx([0.4, 0.6], abs=1e-7)  # 3λ₁ = 2λ₂
        assert solution.status == "optimal"


def two_branches():
    """s0 leads to sA or sB; each offers one user 1, or both .4; then it is over."""
    P = np.zeros((2, 4, 4))
    P[:, 0, 1] = P[:, 0, 2] = 0.5
    P[:, 1:, 3] = 1
    rewards = np.zeros((4, 2, 2))
    rewards[1] = [[1, 0], [0.4, 0.4]]
    rewards[2] = [[0, 1], [0.4, 0.4]]
    return Raw(P, rewards, np.eye(4)[0])


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_fairness_over_branches_is_in_expectation(method):
    """Whoever is fair in each branch, as GGF-DQN is, gets .36."""
    model = two_branches().model()
    solution = eh.solve(model, GINI, gamma=0.9, method=method)
    assert solution.welfare == pytest.approx(0.45, abs=1e-7)
    assert solution.returns == pytest.approx([0.45, 0.45], abs=1e-7)
    assert solution.policy[1:3] == pytest.approx(np.array([[1, 0], [1, 0]]), abs=1e-6)
    by_branch = eh.evaluate(model, [0, 1, 1, 0], gamma=0.9)
    assert GINI.value(by_branch) == pytest.approx(0.36, abs=1e-12)


def test_the_optimum_depends_on_the_start():
    """The paper's Example 3.2: with (5/9, 4/9) Down is best in s2 from both states; with (4/5, 1/5) it is not."""
    for weights, from_first, second_action in (([5, 4], [12, 5], 1), ([4, 1], [7, 7], 0)):
        solution = eh.solve(examples.state_dependence(0.9), eh.GGF(weights), gamma=0.9)
        assert solution.returns == pytest.approx(from_first, abs=1e-6)
        assert solution.policy[1, second_action] == pytest.approx(1, abs=1e-6)
        later = eh.solve(examples.state_dependence(0.9, start=1), eh.GGF(weights), gamma=0.9)
        assert later.policy[1] == pytest.approx([0, 1], abs=1e-6)


def test_only_a_mixture_is_optimal_and_the_answer_says_so():
    model = examples.stay_or_leave()
    for method in ("auto", "columns"):
        solution = eh.solve(model, GINI, criterion="average", method=method)
        assert solution.status == "optimal"
        assert isinstance(solution.policy, eh.Mixture)
        assert solution.policy.shares == pytest.approx([0.5, 0.5], abs=1e-7)
        assert sorted(solution.policy.policies[:, 0]) == [0, 1]
        assert solution.returns == pytest.approx([0.5, 0.5], abs=1e-7)
        assert solution.welfare == pytest.approx(0.5, abs=1e-7)
        assert eh.evaluate(model, solution.policy, criterion="average") == pytest.approx(solution.returns, abs=1e-12)
        assert "mixture" in solution.note
    for p in (0, 1e-6, 0.5, 1):  # every stationary policy has 1/3
        returns = eh.evaluate(model, [[1 - p, p], [1, 0]], criterion="average")
        assert GINI.value(returns) == pytest.approx(1 / 3, abs=1e-12)


def test_the_linear_program_alone_explains_a_mixture_too():
    """Asked for explicitly, it must not blame rounding for what no stationary policy can do."""
    solution = eh.solve(examples.stay_or_leave(), GINI, criterion="average", method="lp")
    assert solution.welfare + solution.gap >= 0.5
    assert solution.note


@pytest.mark.parametrize("method", ["auto", "lp", "columns"])
@pytest.mark.parametrize("with_refuge", [False, True])
def test_two_homes_are_joined_by_rare_moves(method, with_refuge):
    """No stationary policy attains ½, but some come as close as is asked for."""
    for start in range(2):
        model = examples.two_homes(with_refuge, start=start)
        for tol in (1e-4, 1e-6, 1e-8):
            solution = eh.solve(model, GINI, criterion="average", method=method, tol=tol)
            assert not isinstance(solution.policy, eh.Mixture)
            assert solution.status == "optimal"
            assert 0.5 - tol <= solution.welfare <= 0.5
            assert solution.welfare + solution.gap >= 0.5 - 1e-12
            assert GINI.value(eh.evaluate(model, solution.policy, criterion="average")) == pytest.approx(
                solution.welfare, abs=1e-12
            )


def test_discounting_can_mislead_for_ever():
    """With a refuge, the γ-optimal policy leaves s1 at rate 1 − γ and never returns: its average GGF is 1/3."""
    model = examples.two_homes(with_refuge=True)
    for gamma in (0.9, 0.99, 0.999):
        solution = eh.solve(model, GINI, gamma=gamma)
        assert solution.welfare * (1 - gamma) == pytest.approx(0.5 * gamma + 0.5 * (1 - gamma), abs=0.06)
        assert GINI.value(eh.evaluate(model, solution.policy, criterion="average")) <= 0.5 + 1e-9


# Brute force


@pytest.mark.parametrize("D", range(1, 7))
@pytest.mark.parametrize("kind", KINDS)
def test_program_columns_and_brute_force_agree(kind, D):
    raw = small(kind, 10 * D, D=D, policies=300)
    welfare = random_ggf(np.random.default_rng([D, KINDS.index(kind)]), D)
    model = raw.model()
    for gamma in GAMMAS:
        best = best_ggf(corners(raw, gamma), welfare.weights)
        whole = solve_ggf_program(model, welfare.weights, gamma)
        assert whole is not None
        assert whole.value * horizon(gamma) == pytest.approx(best, abs=1e-8 * scale_of(raw, gamma), rel=0)
        for method in ("lp", "columns"):
            solution = eh.solve(model, welfare, method=method, **question(gamma))
            assert solution.method == method
            check_ggf(raw, solution, gamma, welfare, best)


@given(raw_models(), st.sampled_from([0.0, 0.9, 0.999, AVERAGE, AVERAGE]), st.data())
@settings(max_examples=100)
def test_any_small_model(raw, gamma, data):
    welfare = data.draw(ggfs(raw.sizes[2]))
    best = best_ggf(corners(raw, gamma), welfare.weights)
    solution = eh.solve(raw.model(), welfare, **question(gamma))
    check_ggf(raw, solution, gamma, welfare, best)
    assert solution.gap <= 1.001e-8 * scale_of(raw, gamma)


@pytest.mark.parametrize("kind", [sparse, multichain, absorbing, communicating, ties, deterministic])
def test_average_on_models_of_many_parts(kind):
    """Structure is what matters here: many models, each small."""
    mixtures = 0
    for seed in range(200, 215):
        raw = small(kind, seed, policies=250)
        welfare = random_ggf(np.random.default_rng(seed), raw.sizes[2])
        best = best_ggf(corners(raw, AVERAGE), welfare.weights)
        solution = eh.solve(raw.model(), welfare, criterion="average")
        check_ggf(raw, solution, AVERAGE, welfare, best)
        assert solution.gap <= 1.001e-8 * scale_of(raw, AVERAGE)
        mixtures += isinstance(solution.policy, eh.Mixture)
        if raw.model().weakly_communicating:  # theory.md: then a stationary policy comes as close as one likes
            assert not isinstance(solution.policy, eh.Mixture)
    assert mixtures < 15


def test_where_the_natural_policy_fails():
    """π(a|s) = x(s, a)/x(s) may fall apart into pieces that never meet; the answer must not."""
    failures = 0
    for seed in range(60):
        raw = small(communicating, seed, D=3, policies=250)
        model = raw.model()
        assert model.weakly_communicating or raw.sizes[1] == 1
        welfare = eh.GGF.geometric(3)
        x = solve_ggf_program(model, welfare.weights, AVERAGE)
        visited = x.staying.sum(axis=1, keepdims=True) > 1e-9
        passed = x.passing.sum(axis=1, keepdims=True) > 1e-9
        natural = np.where(visited, x.staying, np.where(passed, x.passing, 1.0))
        natural /= natural.sum(axis=1, keepdims=True)
        best = best_ggf(corners(raw, AVERAGE), welfare.weights)
        if float(welfare.value(brute_evaluate(raw, natural, AVERAGE))) > best - 1e-4:
            continue
        failures += 1
        for method in ("lp", "columns", "auto"):
            solution = eh.solve(model, welfare, criterion="average", method=method)
            check_ggf(raw, solution, AVERAGE, welfare, best)
            assert solution.status == "optimal"
            assert not isinstance(solution.policy, eh.Mixture)
    assert failures >= 3


@pytest.mark.parametrize("tol", [0.3, 0.03, 1e-3, 1e-5])
@pytest.mark.parametrize("gamma", [0.9, 0.9999, AVERAGE])
def test_loose_answers_have_honest_gaps(gamma, tol):
    """Where the search stops early, the gap is what can be missed, and is as small as was asked for."""
    for kind, seed in itertools.product((dense, multichain, communicating, periodic), range(3)):
        raw = small(kind, seed, D=4, policies=300)
        welfare = eh.GGF.geometric(4)
        best = best_ggf(corners(raw, gamma), welfare.weights)
        solution = eh.solve(raw.model(), welfare, method="columns", tol=tol, **question(gamma))
        check_answer(raw, solution, gamma, welfare)
        eps = EPS * scale_of(raw, gamma)
        assert best - eps <= solution.welfare + solution.gap
        assert solution.welfare <= best + eps
        assert solution.gap <= tol * scale_of(raw, gamma) + eps
        assert solution.status == "optimal"


def test_no_random_policy_beats_the_optimum():
    rng = np.random.default_rng(5)
    for kind in KINDS:
        raw = small(kind, 77, D=3)
        S, A, _ = raw.sizes
        for gamma in (0.9, AVERAGE):
            for welfare in (eh.GGF.geometric(3), eh.Maximin(3), eh.Utilitarian(3)):
                solution = eh.solve(raw.model(), welfare, **question(gamma))
                for _ in range(20):
                    policy = rng.dirichlet(np.full(A, rng.choice([0.1, 1, 10])), S)
                    worth = float(welfare.value(brute_evaluate(raw, policy, gamma)))
                    assert worth <= solution.welfare + solution.gap + EPS * scale_of(raw, gamma)


def test_optima_of_a_larger_model_are_not_beaten_either():
    raw = dense(np.random.default_rng(1), 40, 4, 4)
    rng = np.random.default_rng(2)
    for gamma in (0.95, AVERAGE):
        welfare = eh.GGF.geometric(4)
        solution = eh.solve(raw.model(), welfare, **question(gamma))
        assert solution.status == "optimal"
        for _ in range(200):  # near the optimum, where it is hardest
            policy = 0.9 * solution.policy + 0.1 * rng.dirichlet(np.full(4, 0.2), 40)
            worth = float(welfare.value(brute_evaluate(raw, policy, gamma)))
            assert worth <= solution.welfare + solution.gap + 1e-9


# Certificates where events are rare


def gamble(p, good, bad=0.0):
    """Stay, or try to leave for a better place, which works once in 1/p times."""
    rewards = np.array([[[bad], [bad]], [[good], [good]]])
    return Raw(np.array([[[1, 0], [0, 1]], [[1 - p, p], [0, 1]]]), rewards, np.array([1.0, 0.0]))


@pytest.mark.parametrize("method", ["lp", "columns", "auto"])
@pytest.mark.parametrize(
    ("p", "good", "bad"),
    [(1e-3, 1.0, 0.0), (1e-8, 1.0, 0.0), (1e-13, 1.0, 0.0), (1e-10, 1001.0, 1000.0), (5e-7, 1e-6, 0.0)],
)
def test_rare_ways_out_are_worth_waiting_for(method, p, good, bad):
    """In the long run every chance comes: the optimum is what the better place pays."""
    solution = eh.solve(gamble(p, good, bad).model(), "ggf", criterion="average", method=method)
    assert solution.welfare + solution.gap >= good * (1 - 1e-12)
    assert solution.welfare <= good * (1 + 1e-12)


@pytest.mark.parametrize("p", [1e-8, 1e-12, 1e-15, 1e-17, 1e-100, 5e-324])
def test_transitions_too_rare_to_compute_with(p):
    """1 − p may be 1 in floating point: the answer is a finite one with an honest gap, or a refusal."""
    circle = np.array([[0, 1 - p, p], [1, 0, 0], [0, 0, 1]])
    wait = np.array([[1, 0, 0], [0, 1 - p, p], [0, 0, 1]])
    rewards = np.zeros((3, 2, 2))
    rewards[0], rewards[1], rewards[2] = (1, 0), (0, 1), (2, 2)
    for transitions, gamma in itertools.product(([circle], [circle, wait]), (0.9, 0.99999, AVERAGE)):
        A = len(transitions)
        for method in ("lp", "columns", "auto"):
            try:
                model = eh.MOMDP(np.array(transitions), rewards[:, :A], [1, 0, 0])
                solution = eh.solve(model, "ggf", method=method, **question(gamma))
            except eh.InputError:
                continue
            assert np.isfinite([*solution.returns, solution.welfare, solution.gap]).all()
            if gamma == AVERAGE and p > 1e-16:
                assert solution.welfare + solution.gap >= 2 - 1e-9


# Independent solvers


def cvxpy_optimum(raw, gamma, objective):
    """The occupation-measure program with a concave objective, in CVXPY; average only for unichain models."""
    S, A, D = raw.sizes
    discount = 1.0 if gamma == AVERAGE else gamma
    x = cp.Variable((S, A), nonneg=True)
    inflow = sum(raw.transitions[a].T @ x[:, a] for a in range(A))
    constraints = [cp.sum(x, axis=1) - discount * inflow == (1 - discount) * raw.initial, cp.sum(x) == 1]
    z = cp.hstack([cp.sum(cp.multiply(x, raw.rewards[:, :, i])) for i in range(D)]) * horizon(gamma)
    problem = cp.Problem(cp.Maximize(objective(z)), constraints)
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return problem.value, z.value


def cvxpy_ggf(weights):
    steps = weights - np.append(weights[1:], 0)
    return lambda z: sum(step * cp.sum_smallest(z, k + 1) for k, step in enumerate(steps))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", UNICHAIN)
def test_cvxpy_agrees_on_ggf(kind, seed):
    raw = kind(np.random.default_rng(seed), 8, 3, 2 + seed)
    for gamma in (0.9, AVERAGE):
        welfare = random_ggf(np.random.default_rng(seed), 2 + seed)
        value, _ = cvxpy_optimum(raw, gamma, cvxpy_ggf(welfare.weights))
        for method in ("lp", "columns"):
            solution = eh.solve(raw.model(), welfare, method=method, **question(gamma))
            assert solution.welfare == pytest.approx(value, abs=1e-6 * scale_of(raw, gamma))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_cvxpy_agrees_on_smooth_welfare(alpha, seed):
    D = 2 + seed
    raw = dense(np.random.default_rng(seed), 6, 3, D)
    raw = raw.with_rewards(raw.rewards**3)  # so that fairness has a price
    for gamma in (0.9, AVERAGE):

        def objective(z):
            if alpha == 1:
                return cp.sum(cp.log(z)) / D
            return cp.sum(cp.power(z, 1 - alpha)) / (1 - alpha) / D

        value, z = cvxpy_optimum(raw, gamma, objective)
        for welfare in [eh.AlphaFair(D, alpha)] + [eh.Nash(D)] * (alpha == 1):
            solution = eh.solve(raw.model(), welfare, **question(gamma))
            unit = float(np.sum(welfare.gradient(z))) * scale_of(raw, gamma)
            assert solution.welfare == pytest.approx(value, abs=1e-6 * unit)
            assert solution.welfare + solution.gap >= value - 1e-7 * unit
            if alpha:
                assert solution.returns == pytest.approx(z, rel=1e-3)
                assert solution.weights == pytest.approx(welfare.gradient(z), rel=1e-2)


def best_scalar(raw, reward, gamma):
    """Value iteration on a scalar model, from the initial distribution."""
    v = np.zeros(len(reward))
    for _ in range(int(40 / (1 - gamma))):
        v = (reward + gamma * (raw.transitions @ v).T).max(axis=1)
    return raw.initial @ v


def test_utilitarian_is_a_scalar_model():
    for kind in KINDS:
        raw = small(kind, 1)
        for gamma in (0.5, 0.9):
            best = best_scalar(raw, raw.rewards.mean(axis=2), gamma)
            for method in ("lp", "columns"):
                solution = eh.solve(raw.model(), "utilitarian", gamma=gamma, method=method)
                assert solution.welfare == pytest.approx(best, abs=1e-7 * scale_of(raw, gamma))
                same = eh.solve(raw.model(), eh.AlphaFair(raw.sizes[2], 0), gamma=gamma, method=method)
                assert same.welfare == solution.welfare


@pytest.mark.parametrize("criterion", ["discounted", "average"])
def test_linear_welfare_takes_one_query(criterion):
    """No weights but the first are possible, so that the first answer is the last, and it is deterministic."""
    gamma = {"gamma": 0.9} if criterion == "discounted" else {}
    for kind in KINDS:
        raw = small(kind, 1)
        solution = eh.solve(raw.model(), "utilitarian", criterion=criterion, method="columns", **gamma)
        by_program = eh.solve(raw.model(), "utilitarian", criterion=criterion, method="lp", **gamma)
        assert (solution.queries, solution.status) == (1, "optimal")
        assert solution.welfare >= by_program.welfare - by_program.gap - solution.gap
        assert set(np.unique(solution.policy[raw.model().reachable])) <= {0.0, 1.0}


def test_one_objective_is_a_scalar_model_whatever_the_welfare():
    for kind in (dense, sparse, periodic, deterministic):
        raw = small(kind, 3, D=1)
        best = best_scalar(raw, raw.rewards[:, :, 0], 0.9)
        for text in (
            "ggf",
            "ggf:10",
            "maximin",
            "leximin",
            "nash",
            "alpha:2",
            "regularized-maximin:0.1",
            "utilitarian",
        ):
            solution = eh.solve(raw.model(), text, gamma=0.9)
            assert solution.returns[0] == pytest.approx(best, abs=1e-7 * scale_of(raw, 0.9))


# Other welfare functions


@pytest.mark.parametrize("kind", KINDS)
def test_leximin_by_brute_force(kind):
    for D, gamma in itertools.product((1, 2, 4), (0.9, AVERAGE)):
        raw = small(kind, D, D=D, policies=250)
        solution = eh.solve(raw.model(), "leximin", **question(gamma))
        check_answer(raw, solution, gamma, eh.Leximin(D))
        best = best_leximin(corners(raw, gamma))
        assert np.sort(solution.returns) == pytest.approx(best, abs=1e-6 * scale_of(raw, gamma), rel=0)
        assert solution.gap <= 1.001e-8 * scale_of(raw, gamma)


def test_leximin_goes_on_where_maximin_stops():
    """The worst-off user has 1 whatever happens; the others then share as evenly as they can."""
    raw = Raw(np.ones((2, 1, 1)), np.array([[[1.0, 5, 2], [1, 2, 4]]]), np.ones(1))
    solution = eh.solve(raw.model(), "leximin", gamma=0.0)
    assert solution.returns == pytest.approx([1, 3.2, 3.2], abs=1e-7)
    assert solution.policy == pytest.approx(np.array([[0.4, 0.6]]), abs=1e-7)


def test_leximin_does_not_trade():
    """However little the worst-off user would lose and however much the others would gain."""
    raw = Raw(np.ones((2, 1, 1)), np.array([[[0.5, 0.5], [0.4999, 2]]]), np.ones(1))
    solution = eh.solve(raw.model(), "leximin", gamma=0.0)
    assert solution.returns == pytest.approx([0.5, 0.5], abs=1e-4)
    assert solution.returns[0] == pytest.approx(0.5, abs=1e-7)


def test_the_gap_of_leximin_is_what_it_is_said_to_be():
    """Not a bound on the stand-in welfare, which would trade; the sums of the smallest returns are what is bounded."""
    raw = Raw(np.ones((2, 1, 1)), np.array([[[0.5, 0.5], [0.4999, 2]]]), np.ones(1))
    solution = eh.solve(raw.model(), "leximin", gamma=0.0)
    assert solution.returns.min() + solution.gap >= 0.5 - 2e-9
    assert solution.welfare == pytest.approx(float(eh.Leximin(2).value(solution.returns)))


def one_state(rewards):
    """One state, and an action for each row of rewards."""
    rewards = np.asarray(rewards, float)
    return Raw(np.ones((len(rewards), 1, 1)), rewards[None], np.ones(1))


def test_the_first_stage_of_leximin_is_maximin():
    """What a later stage gives up of an earlier one is part of the gap, and less than it says."""
    raw = one_state([[3, 6], [4, 0], [6, 5]])
    solution = eh.solve(raw.model(), "leximin", gamma=0.0)
    worst_off = eh.solve(raw.model(), "maximin", gamma=0.0)
    assert worst_off.welfare == pytest.approx(5.25, abs=1e-12)
    assert solution.returns.min() + solution.gap >= 5.25
    assert abs(solution.returns.min() - worst_off.welfare) <= solution.gap + worst_off.gap


@pytest.mark.parametrize("seed", range(40))
def test_no_stage_of_leximin_can_be_beaten_by_more_than_the_gap(seed):
    """Of all mixtures whose earlier sums reach the answer's own, none has a larger sum of the k smallest."""
    rng = np.random.default_rng(seed)
    D = int(rng.integers(2, 5))
    raw = one_state(rng.integers(0, 7, (int(rng.integers(2, 5)), D)))
    solution = eh.solve(raw.model(), "leximin", gamma=0.0)
    assert solution.status == "optimal"
    mine = theta(solution.returns)
    for k in range(1, D + 1):
        rival = best_sum(raw.rewards[0], k, mine)
        if rival is not None and (theta(rival)[: k - 1] >= mine[: k - 1]).all():
            assert theta(rival)[k - 1] <= mine[k - 1] + k * (solution.gap + 1e-13)


@pytest.mark.parametrize("gamma", [0.0, 0.9, AVERAGE])
@pytest.mark.parametrize(
    "rewards",
    [
        [[1000.0000005, 1000.0000001, 1000.0000003]],
        [[1000.0000000007, 1000.0000000001, 1000.0000000002]],
        [[0.100000007, 0.100000001, 0.100000002]],
        [[1000.0] * 8],
        [[1 / 3] * 8, [0.1] * 8],
        [[1e9, 1e9 + 1e-6]] * 2,
    ],
)
@pytest.mark.parametrize("text", ["ggf", "maximin", "leximin", "nash", "alpha:3"])
def test_returns_that_hardly_differ(text, rewards, gamma):
    raw = one_state(rewards)
    solution = eh.solve(raw.model(), text, **question(gamma))
    assert solution.status == "optimal"
    assert solution.returns == pytest.approx(raw.rewards[0].max(axis=0) * horizon(gamma), rel=1e-8)


@pytest.mark.parametrize("text", ["ggf", "maximin", "utilitarian", "leximin", "nash", "alpha:2"])
def test_a_linear_program_that_is_not_solved_is_no_traceback(monkeypatch, text):
    """Whatever HiGHS answers, there is a policy, and a gap that holds."""
    monkeypatch.setattr("evenhand.exact.master._OrderedProgram.solve", lambda self: None)
    raw = dense(np.random.default_rng(1), 4, 3, 3)
    solution = eh.solve(raw.model(), text, gamma=0.9, method="columns")
    check_answer(raw, solution, 0.9, eh.welfare(text, 3))
    Z = corners(raw, 0.9)
    if text == "leximin":
        assert best_sum(Z, 1).min() <= solution.returns.min() + solution.gap + 1e-9
    elif text in ("nash", "alpha:2"):
        assert best_smooth(Z, eh.welfare(text, 3))[0] <= solution.welfare + solution.gap + 1e-9
    else:
        assert best_ggf(Z, eh.welfare(text, 3).weights) <= solution.welfare + solution.gap + 1e-9


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e-20, 1e8, 1e100, 1e190])
@pytest.mark.parametrize("text", ["ggf", "leximin", "nash", "alpha:0.5", "alpha:2", "alpha:50"])
def test_units_of_reward_do_not_matter(text, size):
    """The same policy, and, where a double holds it, the same welfare in other units, with a gap as small."""
    raw = one_state(np.random.default_rng(0).random((3, 3)) + 0.1)
    usual = eh.solve(raw.model(), text, gamma=0.5)
    odd = eh.solve(raw.with_rewards(raw.rewards * size).model(), text, gamma=0.5)
    assert odd.status == usual.status == "optimal"
    assert odd.returns / size == pytest.approx(usual.returns, rel=1e-6)
    welfare = eh.welfare(text, 3)
    assert odd.welfare == pytest.approx(float(welfare.value(odd.returns)), rel=1e-12)
    if text == "alpha:50" and size != 1e-20 and size > 1e-6:
        assert "too small a number for double precision" in odd.note
        assert odd.gap > 0
    elif text == "alpha:50":
        assert "too large a number" in odd.note
        assert odd.gap == np.inf
    else:
        assert odd.gap < 1e-6 * max(1.0, abs(odd.welfare))


@pytest.mark.parametrize("alpha", [1 - 1e-9, 1 + 1e-9])
def test_alpha_close_to_one_is_close_to_nash(alpha):
    """The constant 1/(1 − α) in the welfare drowns its digits, but not those of the search."""
    raw = one_state(np.random.default_rng(0).random((3, 3)) + 0.1)
    near, nash = (eh.solve(raw.model(), w, gamma=0.5) for w in (eh.AlphaFair(3, alpha), "nash"))
    assert near.status == "optimal"
    assert near.returns == pytest.approx(nash.returns, abs=1e-6)


@pytest.mark.parametrize("text", ["ggf", "leximin", "nash"])
@pytest.mark.parametrize("leak", [1e-10, 3e-14, 1e-15])
def test_the_work_on_a_model_that_almost_falls_apart_is_bounded(monkeypatch, leak, text):
    """Rounding forbids a small gap; that shows soon, and the answer says so."""
    rng = np.random.default_rng(0)
    P = np.zeros((2, 5, 5))
    for a, s in itertools.product(range(2), range(5)):
        home = np.arange(2) if s < 2 else np.arange(2, 5)
        P[a, s] = leak / (5 - len(home))
        P[a, s, home] = rng.dirichlet(np.ones(len(home))) * (1 - leak)
    raw = Raw(P, rng.random((5, 2, 3)), np.eye(5)[0])
    backups, greedy = itertools.count(), ScalarSolver._greedy
    monkeypatch.setattr(ScalarSolver, "_greedy", lambda self, *args: (next(backups), greedy(self, *args))[1])
    solution = eh.solve(raw.model(), text, criterion="average")
    assert next(backups) < 30_000
    assert solution.status == "stalled"
    assert solution.gap < 3


@pytest.mark.parametrize("welfare", ["nash", "alpha:0.5", "alpha:2", "alpha:5"])
def test_smooth_welfare_by_brute_force(welfare):
    for kind, gamma in itertools.product((dense, multichain, communicating), (0.9, AVERAGE)):
        D = {"nash": 4, "alpha:2": 3}.get(welfare, 2)
        raw = small(kind, 20 + D, D=D, policies=250)
        raw = raw.with_rewards(raw.rewards + 0.05)
        w = eh.welfare(welfare, D)
        solution = eh.solve(raw.model(), w, **question(gamma))
        check_answer(raw, solution, gamma, w)
        value, bound = best_smooth(corners(raw, gamma), w)
        unit = float(w.gradient(solution.returns).sum()) * scale_of(raw, gamma)
        assert solution.welfare <= bound + EPS * unit
        assert solution.welfare + solution.gap >= value - EPS * unit
        assert solution.gap <= 1.001e-8 * unit
        assert solution.status == "optimal"


def test_maximin_and_its_relatives():
    """Zero weights and nearly zero ones: the same minimum, but only the regularised one wastes nothing."""
    raw = Raw(np.ones((2, 1, 1)), np.array([[[1.0, 1, 3], [1, 1, 5]]]), np.ones(1))
    for method in ("lp", "columns"):
        assert eh.solve(raw.model(), "maximin", gamma=0.0, method=method).welfare == pytest.approx(1, abs=1e-7)
        regular = eh.solve(raw.model(), eh.RegularizedMaximin(3, 0.01), gamma=0.0, method=method)
        assert regular.returns == pytest.approx([1, 1, 5], abs=1e-6)
    for kind in (dense, multichain, ties):
        raw = small(kind, 6, D=4)
        for gamma in (0.9, AVERAGE):
            best = best_ggf(corners(raw, gamma), np.eye(4)[0])
            eps = 1e-7 * scale_of(raw, gamma)
            assert eh.solve(raw.model(), "maximin", **question(gamma)).welfare == pytest.approx(best, abs=eps)
            assert eh.solve(raw.model(), "leximin", **question(gamma)).returns.min() == pytest.approx(best, abs=eps)
            near = eh.solve(raw.model(), eh.RegularizedMaximin(4, 1e-7), **question(gamma))
            assert near.returns.min() == pytest.approx(best, abs=1e-6 * scale_of(raw, gamma))


class Exponential:
    """A welfare of one's own, −mean exp(−v): it takes any returns."""

    D, name, needs_positive = 2, "exponential", False

    def value(self, v):
        return -np.exp(-np.asarray(v)).mean(axis=-1)

    def gradient(self, v):
        return np.exp(-np.asarray(v)) / 2


@pytest.mark.parametrize("shift", [0.0, -5.0])
def test_a_welfare_of_ones_own(shift):
    raw = Raw(np.ones((2, 1, 1)), np.array([[[3.0, 0], [0, 2]]]) + shift, np.ones(1))
    solution = eh.solve(raw.model(), Exponential(), gamma=0.0)
    p = np.linspace(0, 1, 10001)[:, None]
    best = Exponential().value(p * raw.rewards[0, 0] + (1 - p) * raw.rewards[0, 1]).max()
    assert solution.welfare == pytest.approx(best, rel=1e-6)
    assert solution.welfare + solution.gap >= best - 1e-12 * abs(best)


# How answers change with the question


@pytest.mark.parametrize("gamma", [0.9, AVERAGE])
@pytest.mark.parametrize("kind", [dense, multichain, periodic, negative, communicating])
def test_shifting_and_scaling_rewards(kind, gamma):
    """GGF(c·v + b) = c·GGF(v) + b."""
    raw = small(kind, 4, D=3)
    welfare = eh.GGF.geometric(3)
    before = eh.solve(raw.model(), welfare, **question(gamma))
    for factor, shift in ((1.0, 10.0), (1.0, -3.0), (7.0, 0.0), (0.3, 2.0)):
        other = raw.with_rewards(factor * raw.rewards + shift)
        after = eh.solve(other.model(), welfare, **question(gamma))
        expected = factor * before.welfare + shift * horizon(gamma)
        assert after.welfare == pytest.approx(expected, abs=3e-8 * scale_of(other, gamma))


@pytest.mark.parametrize("method", ["lp", "columns"])
@pytest.mark.parametrize("gamma", [0.9, 0.9999, AVERAGE])
@pytest.mark.parametrize("kind", [dense, sparse, multichain, absorbing, periodic, communicating])
@pytest.mark.parametrize(("size", "offset"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e3), (1e-3, 1e3)])
def test_rewards_of_every_size(kind, gamma, method, size, offset):
    check_size(kind, gamma, method, size, offset)


@pytest.mark.parametrize("method", ["lp", "columns"])
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_rewards_in_odd_units(method, size):
    for kind, gamma in ((dense, 0.9), (dense, AVERAGE), (absorbing, AVERAGE)):
        check_size(kind, gamma, method, size, 0.0)


def check_size(kind, gamma, method, size, offset):
    """The tolerance is a share of the span of the rewards: their unit must not matter."""
    raw = small(kind, 2, D=3)
    raw = raw.with_rewards(size * raw.rewards + offset)
    welfare = eh.GGF.geometric(3)
    solution = eh.solve(raw.model(), welfare, method=method, **question(gamma))
    scale = scale_of(raw, gamma)
    best = best_ggf(corners(raw, gamma), welfare.weights)
    eps = EPS * scale + 1e-15 * abs(offset) * horizon(gamma) ** 2  # the brute force's own rounding
    assert solution.welfare <= best + eps
    assert best - eps <= solution.welfare + solution.gap
    assert solution.status == "optimal"
    assert solution.gap <= 1.001e-8 * scale


@pytest.mark.parametrize("gamma", [0.0, 0.9, 0.99999, AVERAGE])
@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-9, 1e9, 0.1])
def test_constant_rewards(value, gamma):
    for kind in (dense, multichain, absorbing, periodic):
        raw = small(kind, 1, D=2)
        raw = raw.with_rewards(np.full(raw.sizes, value))
        for method in ("lp", "columns"):
            solution = eh.solve(raw.model(), "ggf", method=method, **question(gamma))
            expected = value * horizon(gamma)
            assert solution.returns == pytest.approx([expected] * 2, rel=1e-10)
            assert solution.gap <= 1e-9 * abs(expected)
            if gamma != 0.99999:  # rounding is all that is left there, and may exceed the tolerance
                assert solution.status == "optimal"


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99999, AVERAGE])
@pytest.mark.parametrize("text", ["ggf", "maximin", "utilitarian", "leximin", "nash", "alpha:2"])
def test_the_smallest_model(text, gamma):
    """S = A = D = 1."""
    solution = eh.solve(eh.MOMDP([[[1]]], [[[3]]], [1]), text, **question(gamma))
    assert solution.policy.tolist() == [[1.0]]
    assert solution.returns == pytest.approx([3 * horizon(gamma)], rel=1e-9)
    assert solution.status == "optimal"


@pytest.mark.parametrize("kind", KINDS)
def test_one_action_leaves_no_choice(kind):
    raw = kind(np.random.default_rng(3), 5, 1, 3)
    for gamma in (0.0, 0.9, AVERAGE):
        for method in ("lp", "columns"):
            solution = eh.solve(raw.model(), "ggf", method=method, **question(gamma))
            assert solution.policy.tolist() == [[1.0]] * 5
            expected = brute_evaluate(raw, np.ones((5, 1)), gamma)
            assert solution.returns == pytest.approx(expected, abs=EPS * scale_of(raw, gamma))


@pytest.mark.parametrize("method", ["lp", "columns"])
@pytest.mark.parametrize("kind", [dense, sparse, deterministic, multichain, periodic, communicating])
def test_discounts_close_to_one(kind, method):
    raw = small(kind, 9, D=3)
    for gamma in (0.99999, 0.999999):
        best = best_ggf(corners(raw, gamma), eh.GGF.geometric(3).weights)
        solution = eh.solve(raw.model(), "ggf", gamma=gamma, method=method)
        assert solution.status == "optimal"
        assert solution.welfare == pytest.approx(best, abs=2e-8 * scale_of(raw, gamma))
        assert solution.welfare + solution.gap >= best - EPS * scale_of(raw, gamma)


@pytest.mark.parametrize("kind", UNICHAIN)
def test_discounted_optima_tend_to_the_average_one(kind):
    """(1 − γ)·welfare_γ → average welfare, with an error of order 1 − γ."""
    raw = small(kind, 8, D=3)
    average = eh.solve(raw.model(), "ggf", criterion="average").welfare
    errors = []
    for gamma in (0.99, 0.999, 0.9999):
        errors.append(abs((1 - gamma) * eh.solve(raw.model(), "ggf", gamma=gamma).welfare - average))
        assert errors[-1] <= 20 * (1 - gamma) * raw.span + 1e-7
    assert errors[-1] <= 0.02 * errors[0] + 1e-7


@pytest.mark.parametrize("gamma", [0.9, AVERAGE])
@pytest.mark.parametrize("kind", [dense, degenerate, periodic, multichain])
def test_permuting_the_users(kind, gamma):
    raw = small(kind, 12, D=3)
    before = eh.solve(raw.model(), "ggf", **question(gamma))
    for order in itertools.permutations(range(3)):
        other = raw.with_rewards(raw.rewards[:, :, order])
        for method in ("lp", "columns"):
            after = eh.solve(other.model(), "ggf", method=method, **question(gamma))
            eps = 3e-8 * scale_of(raw, gamma)
            if after.status == "optimal":
                assert after.welfare == pytest.approx(before.welfare, abs=eps)


def test_permuting_the_users_permutes_a_unique_optimum():
    """A strictly concave welfare has but one optimal vector of returns."""
    raw = small(dense, 12, D=3)
    before = eh.solve(raw.model(), "nash", gamma=0.9)
    for order in ((0, 2, 1), (1, 2, 0)):
        after = eh.solve(raw.with_rewards(raw.rewards[:, :, order]).model(), "nash", gamma=0.9)
        assert after.returns == pytest.approx(before.returns[list(order)], rel=1e-3)
        assert after.welfare == pytest.approx(before.welfare, abs=1e-7)
    tilted = examples.one_state()
    swapped = eh.MOMDP(np.ones((2, 1, 1)), tilted.rewards[:, :, ::-1], [1])
    for model in (tilted, swapped):
        assert eh.solve(model, GINI, gamma=0.5).returns == pytest.approx([2.4, 2.4], abs=1e-6)


@pytest.mark.parametrize("kind", [unreachable, multichain, degenerate])
@pytest.mark.parametrize("gamma", [0.9, AVERAGE])
def test_what_cannot_be_reached_does_not_matter(kind, gamma):
    for seed in range(4):
        raw = small(kind, seed, D=2)
        model = raw.model()
        part = model.restricted_to(model.reachable)
        whole = eh.solve(model, "ggf", **question(gamma))
        alone = eh.solve(part, "ggf", **question(gamma))
        assert np.array_equal(whole.returns, alone.returns)
        assert whole.gap == alone.gap
        check_answer(raw, whole, gamma, eh.GGF.geometric(2))
        elsewhere = raw.rewards.copy()
        elsewhere[~model.reachable] = 1e9
        again = eh.solve(raw.with_rewards(elsewhere).model(), "ggf", **question(gamma))
        assert np.array_equal(again.returns, whole.returns)


@pytest.mark.parametrize("gamma", [0.9, AVERAGE])
@pytest.mark.parametrize("text", ["ggf", "leximin", "nash"])
def test_the_same_question_has_the_same_answer(text, gamma):
    """To the last bit; and asking does not change the model."""
    for kind in (dense, multichain):
        model = small(kind, 5, D=3, policies=100).model()
        methods = ("lp", "columns") if text == "ggf" else ("auto",)
        for method in methods:
            first, second = (eh.solve(model, text, method=method, **question(gamma)) for _ in range(2))
            assert first.returns.tobytes() == second.returns.tobytes()
            assert (first.welfare, first.gap, first.queries) == (second.welfare, second.gap, second.queries)
            if isinstance(first.policy, eh.Mixture):
                assert first.policy.shares.tobytes() == second.policy.shares.tobytes()
                assert first.policy.policies.tobytes() == second.policy.policies.tobytes()
            else:
                assert first.policy.tobytes() == second.policy.tobytes()


# Evaluation


@given(raw_models(), st.sampled_from([0.0, 0.5, 0.99, 0.999999, AVERAGE]), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_evaluation(raw, gamma, seed):
    S, A, _ = raw.sizes
    rng = np.random.default_rng(seed)
    model = raw.model()
    eps = 1e-10 * scale_of(raw, gamma) * (1 if gamma == AVERAGE else 1 + 1e-4 * horizon(gamma))
    stochastic = rng.dirichlet(np.full(A, 0.5), S)
    actions = rng.integers(A, size=(3, S))
    mixture = eh.Mixture(rng.dirichlet(np.ones(3)), actions)
    for policy in (stochastic, actions[0], mixture):
        returns = eh.evaluate(model, policy, **question(gamma))
        assert returns == pytest.approx(brute_evaluate(raw, policy, gamma), abs=eps, rel=1e-9)


def test_evaluation_by_hand():
    model = eh.MOMDP([[[0, 1], [1, 0]]], [[[1, 0]], [[0, 1]]], [1, 0])
    assert eh.evaluate(model, [0, 0], gamma=0.5) == pytest.approx([4 / 3, 2 / 3], abs=1e-14)
    assert eh.evaluate(model, [[1], [1]], gamma=0.0) == pytest.approx([1, 0], abs=0)
    assert eh.evaluate(model, [0, 0], criterion="average") == pytest.approx([0.5, 0.5], abs=1e-15)


def test_policies_may_be_written_in_several_ways():
    raw = small(dense, 3, D=2)
    S, A, _ = raw.sizes
    actions = np.random.default_rng(0).integers(A, size=S)
    as_numbers = eh.evaluate(raw.model(), actions, gamma=0.9)
    one_hot = np.eye(A)[actions]
    for policy in (actions.tolist(), actions.astype(np.uint8), one_hot, one_hot.tolist(), one_hot.astype(int)):
        assert np.array_equal(eh.evaluate(raw.model(), policy, gamma=0.9), as_numbers)


def test_evaluation_leaves_its_arguments_alone():
    raw = small(dense, 0, D=2)
    S, A, _ = raw.sizes
    policy = np.full((S, A), (1 + 1e-8) / A)
    before = policy.copy()
    eh.evaluate(raw.model(), policy, gamma=0.9)
    assert np.array_equal(policy, before)
    P, R = chain_of(raw, policy)
    assert P.shape == (S, S)
    assert R.shape == (S, 2)


# Interrupts


class Interrupt:
    """A report that has Ctrl-C pressed at a certain query."""

    def __init__(self, query):
        self.query, self.seen = query, []

    def __call__(self, reached, bound, queries):
        self.seen.append((reached, bound, queries))
        if len(self.seen) >= self.query:
            raise KeyboardInterrupt


@pytest.mark.parametrize("query", [1, 3, 5])
@pytest.mark.parametrize("gamma", [0.9, AVERAGE])
@pytest.mark.parametrize("text", ["ggf", "maximin", "leximin", "nash", "alpha:2"])
def test_an_interrupt_keeps_the_best_so_far(text, gamma, query):
    for kind in (dense, sparse):
        raw = kind(np.random.default_rng(3), 5, 3, 6)
        raw = raw.with_rewards(raw.rewards**2 + 0.01)  # so that it takes a few queries
        welfare, interrupt = eh.welfare(text, 6), Interrupt(query)
        solution = eh.solve(raw.model(), welfare, method="columns", report=interrupt, **question(gamma))
        assert len(interrupt.seen) == query
        assert solution.status == "interrupted" or solution.gap < 1e-6  # it may have been about to end
        assert solution.queries == interrupt.seen[-1][2]
        check_answer(raw, solution, gamma, welfare)
        Z = corners(raw, gamma)
        if text == "leximin":
            mine, give = theta(solution.returns), EPS * scale_of(raw, gamma)
            for k in range(1, 7):
                assert theta(best_sum(Z, k, mine - give))[k - 1] <= mine[k - 1] + k * (solution.gap + 10 * give)
            continue
        if text in ("nash", "alpha:2"):
            best, _ = best_smooth(Z, welfare)
            unit = float(welfare.gradient(solution.returns).sum()) * scale_of(raw, gamma)
        else:
            best, unit = best_ggf(Z, welfare.weights), scale_of(raw, gamma)
        assert solution.welfare <= best + EPS * unit
        assert solution.welfare + solution.gap >= best - EPS * unit


def test_an_interrupt_keeps_the_bound_that_was_proven():
    """Once the search for the optimum itself has begun, its bound is worth more than the largest rewards."""
    raw = dense(np.random.default_rng(0), 5, 3, 5)
    interrupt = Interrupt(5)
    solution = eh.solve(raw.with_rewards(raw.rewards**2).model(), "nash", gamma=0.9, report=interrupt)
    _, bound, _ = interrupt.seen[-1]
    assert solution.status == "interrupted"
    assert solution.welfare + solution.gap == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("text", ["ggf", "leximin", "nash"])
def test_ctrl_c(text):
    """The real signal, in the middle of a solve; afterwards Ctrl-C is what it was before."""
    raw = dense(np.random.default_rng(0), 5, 3, 5)
    raw = raw.with_rewards(raw.rewards**2 + 0.01)

    def press(_reached, _bound, queries):
        if queries == 3:
            signal.raise_signal(signal.SIGINT)

    solution = eh.solve(raw.model(), text, gamma=0.9, method="columns", report=press)
    assert solution.status == "interrupted"
    assert solution.queries <= 4
    check_answer(raw, solution, 0.9, eh.welfare(text, 5))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_not_lost(monkeypatch):
    """While the linear program runs nobody reports; who solves many small models in a loop must still get out."""
    whole = sys.modules["evenhand.exact.solver"]

    def press_and_solve(*arguments):
        signal.raise_signal(signal.SIGINT)
        return solve_ggf_program(*arguments)

    monkeypatch.setattr(whole, "solve_ggf_program", press_and_solve)
    with contextlib.suppress(KeyboardInterrupt):
        assert eh.solve(MODEL, "ggf", gamma=0.9, method="lp").status == "interrupted"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_ctrl_c_is_what_it_was_after_an_error_too(error):
    def broken(*_):
        raise error

    with contextlib.suppress(error):
        eh.solve(MODEL, "ggf", gamma=0.9, method="columns", report=broken)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("query", [1, 2, 3])
def test_an_interrupt_before_anything_is_known(query):
    """Nash needs positive returns, and no mixture with such has been found yet: there is nothing to return."""
    model = eh.MOMDP(np.ones((5, 1, 1)), (11 * np.eye(5) - 1)[None], [1])
    try:
        solution = eh.solve(model, "nash", gamma=0.5, report=Interrupt(query))
    except KeyboardInterrupt:
        return
    assert solution.status == "interrupted"
    assert solution.welfare + solution.gap >= np.log(2.4) - 1e-9  # each action a fifth of the time


def test_reports_close_in_on_the_answer():
    seen = []
    model = dense(np.random.default_rng(2), 6, 3, 6).model()
    solution = eh.solve(
        model, "ggf", gamma=0.9, method="columns", report=lambda *numbers: seen.append(numbers), progress=False
    )
    reached, bounds, queries = map(list, zip(*seen, strict=True))
    assert queries == sorted(set(queries))
    assert queries[-1] == solution.queries
    assert bounds == sorted(bounds, reverse=True)
    assert all(low <= high + 1e-9 for low, high in zip(reached, bounds, strict=True))
    assert solution.welfare == pytest.approx(reached[-1], abs=1e-6)


def test_an_error_in_a_report_is_not_swallowed():
    def broken(*_):
        raise RuntimeError("the report's own")

    with pytest.raises(RuntimeError, match="the report's own"):
        eh.solve(dense(np.random.default_rng(2), 6, 3, 6).model(), "ggf", gamma=0.9, method="columns", report=broken)


# Questions that make no sense


MODEL = examples.one_state()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"gamma": None}, r"discounted rewards need gamma, in \[0, 1\)"),
        ({"gamma": 1}, r"gamma must lie in \[0, 1\), not 1; .* criterion=.average."),
        ({"gamma": 1.5}, r"gamma must lie in \[0, 1\), not 1\.5"),
        ({"gamma": -0.1}, r"gamma must lie in \[0, 1\), not -0\.1"),
        ({"gamma": float("nan")}, r"gamma must lie in \[0, 1\), not nan"),
        ({"gamma": "0.9"}, r"gamma must lie in \[0, 1\), not '0\.9'"),
        ({"gamma": True}, r"gamma must lie in \[0, 1\), not True"),
        ({"gamma": [0.9]}, r"gamma must lie in \[0, 1\), not \[0\.9\]"),
        ({"gamma": 0.5j}, r"gamma must lie in \[0, 1\)"),
        ({"criterion": "average"}, "the average reward has no discount: leave gamma out"),
        ({"criterion": "Average"}, "criterion must be .discounted. or .average., not 'Average'"),
        ({"criterion": None}, "criterion must be .discounted. or .average., not None"),
        ({"model": None}, "a model must be an evenhand MOMDP, not NoneType"),
        ({"model": np.ones((2, 1, 1))}, "a model must be an evenhand MOMDP, not ndarray"),
        ({"welfare": eh.GGF.geometric(3)}, "the welfare ggf:2 is for 3 users, but there are 2"),
        ({"welfare": "ggf:0.5,0.3,0.2"}, "has 3 weights, but there are 2 users"),
        ({"welfare": "ggf:1,2"}, "weights must not increase"),
        ({"welfare": "fair"}, "unknown welfare 'fair'"),
        ({"welfare": None}, "a welfare is a text such as 'ggf' or a welfare function, not None"),
        ({"welfare": [2, 1]}, r"a welfare is a text such as 'ggf' or a welfare function, not \[2, 1\]"),
        ({"method": "simplex"}, "method must be .auto., .lp. or .columns., not 'simplex'"),
        ({"method": None}, "method must be .auto., .lp. or .columns., not None"),
        ({"method": "lp", "welfare": "nash"}, "nash is not one linear program; use method=.columns."),
        ({"method": "lp", "welfare": "leximin"}, "leximin is not one linear program; use method=.columns."),
        ({"method": "lp", "welfare": "alpha:2"}, "alpha:2 is not one linear program; use method=.columns."),
        ({"tol": 0}, "tol must be positive, not 0"),
        ({"tol": -1e-6}, "tol must be positive, not -1e-06"),
        ({"tol": float("nan")}, "tol must be positive, not nan"),
        ({"tol": "1e-6"}, "tol must be positive, not .*1e-6"),
        ({"tol": None}, "tol must be positive, not None"),
    ],
)
def test_questions_that_make_no_sense(changes, match):
    asked = {"model": MODEL, "welfare": "ggf", "gamma": 0.9, **changes}
    with unchecked(), pytest.raises(eh.InputError, match=match):
        eh.solve(asked.pop("model"), asked.pop("welfare"), **asked)


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ([[0.5, 0.6]], r"row for state 0 is no probability distribution: \[0\.5 0\.6\]"),
        ([[1.5, -0.5]], "row for state 0 is no probability distribution"),
        ([[np.nan, 1]], "row for state 0 is no probability distribution"),
        ([[np.inf, 0]], "row for state 0 is no probability distribution"),
        ([[np.inf, -np.inf]], "row for state 0 is no probability distribution"),
        ([[1]], r"must be \[S, A\] = \(1, 2\) probabilities or \[S\] whole numbers, not int64 of shape \(1, 1\)"),
        ([[0.5, 0.5]] * 2, r"must be \[S, A\] = \(1, 2\) .* of shape \(2, 2\)"),
        ([0.0], r"or \[S\] whole numbers, not float64 of shape \(1,\)"),
        ([0, 1], r"or \[S\] whole numbers, not int64 of shape \(2,\)"),
        ([2], "actions must be whole numbers from 0 to 1"),
        ([-1], "actions must be whole numbers from 0 to 1"),
        ([True], "not bool of shape"),
        ([["a", "b"]], "a policy must be"),
        ([[1j, 0]], "a policy must be"),
        ([[0.5, 0.5], [1]], "a policy must be"),
        (None, "a policy must be"),
        ("stay", "a policy must be"),
        (0, "a policy must be"),
        (eh.Mixture(np.array([0.5, 0.6]), np.array([[0], [1]])), "shares of a mixture must be non-negative and sum"),
        (eh.Mixture(np.array([1.5, -0.5]), np.array([[0], [1]])), "shares of a mixture must be non-negative and sum"),
        (eh.Mixture(np.array([np.nan, 0.5]), np.array([[0], [1]])), "shares of a mixture"),
        (eh.Mixture(np.array([np.inf, 0.5]), np.array([[0], [1]])), "shares of a mixture"),
        (eh.Mixture(np.array([0.5, 0.5]), np.array([[0], [2]])), "actions must be whole numbers from 0 to 1"),
        (eh.Mixture(np.array([1.0]), np.array([[0, 1]])), r"needs K shares and policies of shape \[K, 1\]"),
        (eh.Mixture(np.empty(0), np.empty((0, 1), dtype=int)), "mixture"),
    ],
)
def test_policies_that_are_none(policy, match):
    for gamma in (0.9, AVERAGE):
        with unchecked(), pytest.raises(eh.InputError, match=match):
            eh.evaluate(MODEL, policy, **question(gamma))


@pytest.mark.parametrize(
    ("shares", "policies"),
    [
        ([0.5, 0.6], [[0], [1]]),
        ("half", [[0], [1]]),
        (np.array(["a", "b"]), np.array([[0], [1]])),
        (np.array([0.5, 0.5]), np.array([[0.0], [1.0]])),
        (np.array([0.5, 0.5]), None),
        (1.0, [[0]]),
    ],
)
def test_mixtures_that_are_none(shares, policies):
    with unchecked(), pytest.raises(eh.InputError):
        eh.evaluate(MODEL, eh.Mixture(shares, policies), gamma=0.9)


def test_mixtures_may_be_written_as_lists():
    with unchecked():
        try:
            returns = eh.evaluate(MODEL, eh.Mixture([0.5, 0.5], [[0], [1]]), gamma=0.5)
        except eh.InputError:
            return  # which is fine, too, if it says so
    assert returns == pytest.approx([3, 2])


@pytest.mark.parametrize("question", [{}, {"gamma": 1}, {"gamma": 0.5, "criterion": "average"}, {"gamma": "x"}])
def test_evaluation_checks_the_question(question):
    with unchecked(), pytest.raises(eh.InputError, match="gamma"):
        eh.evaluate(MODEL, [0], **question)
    with unchecked(), pytest.raises(eh.InputError, match="MOMDP"):
        eh.evaluate("model", [0], gamma=0.9)


@pytest.mark.parametrize("text", ["nash", "alpha:0.5", "alpha:2"])
@pytest.mark.parametrize("gamma", [0.0, 0.9, AVERAGE])
def test_a_welfare_that_needs_positive_returns(text, gamma):
    """Where nobody can be given any, the answer says how much the worst-off can be given at most."""
    for kind, seed in itertools.product((dense, multichain, periodic), range(2)):
        raw = small(kind, seed, D=3)
        raw = raw.with_rewards(raw.rewards - 2)
        best = best_ggf(corners(raw, gamma), np.eye(3)[0])
        with pytest.raises(eh.Infeasible, match="needs positive returns for all 3 users, but no policy") as caught:
            eh.solve(raw.model(), text, **question(gamma))
        said = float(str(caught.value).split("more than ")[1].split(":")[0])
        assert said >= best - 1e-5 * scale_of(raw, gamma)
        assert said <= 0
    assert issubclass(eh.Infeasible, eh.InputError)


def test_positive_returns_need_not_come_from_positive_rewards():
    """Only a mixture of the two actions gives both users something."""
    model = eh.MOMDP(np.ones((2, 1, 1)), [[[3, -1], [-1, 3]]], [1])
    for gamma in (0.0, 0.9, AVERAGE):
        solution = eh.solve(model, "nash", **question(gamma))
        assert solution.returns / horizon(gamma) == pytest.approx([1, 1], abs=1e-4)
        assert solution.welfare == pytest.approx(np.log(horizon(gamma)), abs=1e-7)


def test_what_is_positive_by_rounding_alone_is_not_positive():
    """In the long run the second state is left for good, and the first user has nothing there."""
    raw = Raw(np.array([[[1.0, 0], [0.5, 0.5]]]), np.array([[[0.0, 1, 0.5]], [[1, 1, 1]]]), np.array([0.3, 0.7]))
    with pytest.raises(eh.InputError, match="needs positive returns for all 3 users"):
        eh.solve(raw.model(), "nash", criterion="average")


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.9, AVERAGE])
def test_nothing_for_the_worst_off_is_not_positive(gamma):
    """The best guaranteed minimum is exactly 0: rounding must not make it look positive."""
    for weights in ([1.0, -1.0], [0.1, -0.1], [0.7, -0.7]):
        rewards = np.array([[weights, weights[::-1]], [np.multiply(3, weights), np.multiply(3, weights[::-1])]])
        model = eh.MOMDP(np.full((2, 2, 2), 0.5), rewards, [0.3, 0.7])
        with pytest.raises(eh.Infeasible):
            eh.solve(model, "nash", **question(gamma))


# Larger models


def test_a_random_model_of_some_size():
    """`make soak` has larger ones."""
    model = examples.garnet(1000, 3, 4, 3, seed=3)
    agrees(model, 0.99, by_interior_point(model, 0.99))
    agrees(model, AVERAGE, best_unichain_average(model, eh.GGF.geometric(4).weights))


@pytest.mark.parametrize("gamma", [0.99, AVERAGE])
def test_a_grid_of_some_size(gamma):
    model = examples.grid(20, 3)
    agrees(model, gamma, by_interior_point(model, gamma))


@pytest.mark.parametrize("text", ["ggf", "maximin", "leximin", "nash"])
def test_every_kind_of_welfare_on_a_model_of_some_size(text):
    """Above the size at which the one large program is given up."""
    model = examples.garnet(700, 4, 5, 4, seed=1)
    for gamma in (0.95, AVERAGE):
        solution = eh.solve(model, text, **question(gamma))
        assert solution.method == "columns"
        assert solution.status == "optimal"
        assert distributions(solution.policy)
        assert eh.evaluate(model, solution.policy, **question(gamma)) == pytest.approx(solution.returns, rel=1e-9)
