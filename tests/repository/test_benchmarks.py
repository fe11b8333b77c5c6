"""What the benchmarks rest on: the peer's model and hyperparameters are ours, and the page says what was found.

Nothing here needs the peers to be installed.
"""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from rich.console import Console

from evenhand.envs.species import Species, SpeciesState

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import environments
import exact
import fairness
import learning
import learning_cases
import learning_page
import morl
import page
from species_numpy import SpeciesNumpy


def numpy_model(species: Species) -> SpeciesNumpy:
    return SpeciesNumpy(json.loads(json.dumps(learning_cases.species_constants(species))))


# The NumPy model


@pytest.mark.parametrize(
    "species", [Species(), Species(response="strong", forbid_reintroduction=True, introduction_enforces=False)]
)
def test_years_of_the_numpy_model_are_ours(species: Species) -> None:
    """300 years with the same actions and accidents, among them spills, extinctions, culling and scarce abalone."""
    random = np.random.default_rng(1)
    model, year = numpy_model(species), jax.jit(species.year)
    state, _ = species.reset(jax.random.key(0))
    culled = spilt = 0
    for _ in range(300):
        if random.random() < 0.2:  # somewhere else, so that everything happens
            scale = random.choice([0.001, 0.3, 1.0])
            ages = scale * species.carrying_density * random.dirichlet(np.ones(10))
            otters = random.choice([0.0, 8.0, 14.0, 2000.0, 4000.0])
            state = SpeciesState(jnp.asarray(ages, jnp.float32), jnp.float32(otters), jnp.int32(0))
        action, spill, luck = int(random.integers(5)), float(random.random() ** 3), float(random.random())
        ages, otters, density = model.year(np.asarray(state.ages, float), float(state.otters), action, spill, luck)
        culled += action >= 3 and otters > model._level * 0.99
        spilt += spill < 0.1 and state.otters > 0
        state = year(state, jnp.int32(action), jnp.float32(spill), jnp.float32(luck))
        assert ages == pytest.approx(np.asarray(state.ages), rel=1e-4, abs=1e-7)
        assert otters == pytest.approx(float(state.otters), rel=1e-4)
        assert density == pytest.approx(float(np.sum(state.ages)), rel=1e-4, abs=1e-7)
    assert culled > 5
    assert spilt > 5


def test_the_numpy_environment_observes_rewards_and_ends_as_ours() -> None:
    species = Species(episode_steps=3)
    env = numpy_model(species)
    state, first = species.reset(jax.random.key(0))
    assert env.reset(seed=0)[0] == pytest.approx(np.asarray(first), rel=1e-5)
    for step in range(3):
        observation, reward, terminated, truncated, _ = env.step(1)
        state = SpeciesState(jnp.asarray(env._ages, jnp.float32), jnp.float32(env._otters), jnp.int32(step + 1))
        assert observation == pytest.approx(np.asarray(species.observe(state)), rel=1e-5)
        assert reward == pytest.approx(float(species.worth(state).sum()), rel=1e-5)
        assert (terminated, truncated) == (False, step == 2)


def test_the_numpy_environment_is_a_proper_one() -> None:
    check_env(numpy_model(Species(episode_steps=20)), skip_render_check=True)


def test_chance_is_that_of_the_model() -> None:
    """A spill in a tenth of the years, and much poaching in half of them."""
    with_otters, without = numpy_model(Species(initial_otters=1000)), numpy_model(Species())
    spills, densities = 0, []
    for seed in range(2000):
        with_otters.reset(seed=seed)
        without.reset(seed=seed)
        with_otters.step(0)
        spills += with_otters._otters < 1000
        densities.append(without.step(0)[1])
    assert spills / 2000 == pytest.approx(0.1, abs=0.025)
    least, most = min(densities), max(densities)
    assert least / most == pytest.approx((1 - 0.23) / (1 - 0.17))
    assert sum(density < 0.5 * (least + most) for density in densities) / 2000 == pytest.approx(0.5, abs=0.05)


def test_what_the_numpy_model_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="functional_form"):
        learning_cases.species_constants(Species(response=(1, 18), functional_form="hyperbolic"))


# The same hyperparameters


def test_ppo_in_the_peers_words() -> None:
    changes = {"envs": 8, "rollout": 32, "minibatches": 4, "value": 1.0, "clip_schedule": "linear", "hidden": [32]}
    theirs = learning_cases.as_sb3("ppo", learning_cases.configured("ppo", changes))
    assert theirs["n_envs"] == 8
    assert (theirs["n_steps"], theirs["batch_size"], theirs["n_epochs"]) == (32, 64, 4)
    assert (theirs["vf_coef"], theirs["ent_coef"], theirs["clip_range"]) == (0.5, 0.01, 0.2)
    assert theirs["falling"] == ["clip_range"]
    assert theirs["clip_range_vf"] is None
    assert theirs["policy_kwargs"] == {
        "activation_fn": "tanh",
        "net_arch": {"pi": [32], "vf": [32]},
        "optimizer_kwargs": {"eps": 1e-5},
    }


def test_the_peer_has_one_schedule_for_both_networks() -> None:
    ours = learning_cases.configured("ppo", learning_cases.PPO | {"learning_rate_schedule": "linear"})
    with pytest.raises(ValueError, match="one schedule"):
        learning_cases.as_sb3("ppo", ours)


def test_a2c_in_the_peers_words() -> None:
    theirs = learning_cases.as_sb3(
        "a2c", learning_cases.configured("a2c", learning_cases.A2C | {"normalise_observations": True})
    )
    assert theirs["rms_prop_eps"] == pytest.approx(1e-5)
    assert (theirs["vf_coef"], theirs["gae_lambda"], theirs["normalize_advantage"]) == (0.5, 1.0, False)
    assert theirs["normalise"] == {"norm_obs": True, "norm_reward": False}


def test_dqn_in_the_peers_words() -> None:
    theirs = learning_cases.as_sb3("dqn", learning_cases.configured("dqn", {"memory": 1000, "exploration_end": 0.1}))
    assert (theirs["train_freq"], theirs["buffer_size"], theirs["exploration_final_eps"]) == (4, 1000, 0.1)
    assert theirs["policy_kwargs"]["net_arch"] == [64, 64]
    assert theirs["policy_kwargs"]["optimizer_kwargs"] == {"eps": 1e-8}


def test_what_the_peer_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="reward_scale"):
        learning_cases.as_sb3("ppo", learning_cases.configured("ppo", {"reward_scale": 0.01}))
    with pytest.raises(ValueError, match="double"):
        learning_cases.as_sb3("dqn", learning_cases.configured("dqn", {"double": True}))
    with pytest.raises(ValueError, match="decay"):
        learning_cases.as_sb3("a2c", learning_cases.configured("a2c", {"rmsprop_decay": 0.9}))


@pytest.mark.parametrize(("env", "algo", "steps", "settings"), learning_cases.QUALITY)
def test_every_comparison_is_of_equals(env: str, algo: str, steps: int, settings: dict[str, Any]) -> None:
    config = learning_cases.configured(algo, settings)
    theirs = learning_cases.as_sb3(algo, config)
    json.dumps(theirs)
    if algo == "ppo":
        assert config["envs"] * config["rollout"] % theirs["batch_size"] == 0
        assert theirs["vf_coef"] == 0.5  # the peer's default
    elif algo == "a2c":
        assert (theirs["vf_coef"], theirs["n_steps"]) == ((0.4, 8) if env == "Pendulum-v1" else (0.5, 5))


# The page


def taken(cpu: float, wall: float) -> dict[str, float]:
    return {"steps": 100.0, "cpu": cpu, "wall": wall}


def test_ratios_are_taken_repetition_by_repetition() -> None:
    # The second repetition was disturbed, on both sides alike: its ratio is as good as the others.
    found = learning.compared([taken(1, 1), taken(2, 4), taken(1, 1)], [taken(10, 10), taken(20, 40), taken(12, 9)])
    assert found["ratio"] == pytest.approx(10)
    assert (found["least"], found["most"]) == (pytest.approx(10), pytest.approx(12))
    assert found["wall_ratio"] == pytest.approx(10)
    assert found["ours"] == 100


def test_verdicts() -> None:
    assert learning_page.verdict([9, 10, 11], [1, 2, 3]) == "ahead"
    assert learning_page.verdict([1, 2, 3], [9, 10, 11]) == "behind"
    assert learning_page.verdict([1, 2, 3], [2, 3, 4]) == "level"
    assert learning_page.verdict([500, 500], [500, 500]) == "level"
    assert learning_page.verdict([math.nan, math.nan], [1, 2]) == "–"
    assert learning_page.spread([500.0, 500.0, math.nan]) == "500.0 ± 0.0 (1 without)"
    assert learning_page.spread([1.0, 2.0, 3.0]) == f"2.0 ± {4.302653 / math.sqrt(3):.1f}"


def results(ratio: float, ours: list[float]) -> dict[str, Any]:
    about = {"machine": "2 cores", "loads": {"all": 0.1}, "versions": {"evenhand": "1"}}
    speed = {"ours": 1e5, "theirs": 1e4, "ratio": ratio, "least": ratio, "most": ratio, "wall_ratio": ratio}
    facts = ("compile", "start_wall", "start_cpu", "memory")
    start = {f"{name}_{fact}": 1.0 for name in ("first", "cached", "theirs") for fact in facts}
    seeds = {"steps": 10, "seeds": 2, "peer_steps": 5, "first": 2.0, "cached": 1.0, "two": 30.0, "one": 55.0}
    rows = [{"env": "species", "algo": "ppo", "welfare": welfare} | speed for welfare in ("utilitarian", "ggf")]
    compared = {"evenhand": ours, "sb3": [9.0, 10.0, 11.0]}
    return {
        "speed": about
        | {
            "repeats": 3,
            "species": rows,
            "cartpole": [],
            "mountaincar": [],
            "seeds": seeds | {"cached_two": 30.0, "first_two": 15.0, "cached_one": 55.0, "first_one": 27.5},
            "starting": [{"env": "species", "algo": "ppo", "welfare": "utilitarian"} | start],
        },
        "quality": about
        | {
            "seeds": 3,
            "episodes": 50,
            "rows": [
                {"env": env, "algo": algo, "steps": 1000, "test": compared, "training": compared}
                for env, algo, *_ in learning_cases.QUALITY
            ],
        },
    }


def test_the_page_says_first_where_we_fall_short() -> None:
    good = learning_page.page(results(20.0, [9.0, 10.0, 11.0]))
    assert "Nowhere in what was measured" in good
    assert "| GGF-PPO | 100,000 | 10,000 | 20.0 × |" in good
    bad = learning_page.page(results(12.0, [1.0, 2.0, 3.0]))
    assert bad.index("DQN on CartPole-v1 returns less when tested") < bad.index("## Speed")
    assert "PPO on species is 12.0 × as fast; we aim at 15 ×." in bad
    assert "≥ 15: **no**" in bad
    assert "slower: 0.50 ×" in learning_page.page(results(0.5, [9.0, 10.0, 11.0]))


def test_all_take_turns_on_problems_that_they_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours a hundred times as fast as all others; SBX has no A2C, and only MORL-Baselines needs several users."""
    asked: list[tuple[str, str, str]] = []

    def run(side: str, case: dict[str, Any], cache: str | None = None) -> dict[str, float]:
        asked.append((side, case["algo"], case["welfare"]))
        cpu = case["steps"] / (1e5 if side == "evenhand" else 1e3)
        facts = {"steps": case["steps"], "cpu": cpu, "wall": cpu, "memory": 300.0, "taken": 1000, "before": 5.0}
        return facts | {"start_wall": 4.0, "start_cpu": 4.0, "compile": 2.0 if side in ("evenhand", "sbx") else 0.0}

    monkeypatch.setattr(learning, "run", run)
    rows = learning.throughput("mo-mountaincar-v0", 2, 0.1, "cache", Console(quiet=True))
    once = [("evenhand", "utilitarian"), ("sb3", "utilitarian"), ("evenhand", "ggf")]
    once += [(name, "utilitarian") for name in ("sbx", "cleanrl", "morl")]
    assert [(side, welfare) for side, algo, welfare in asked if algo == "ppo"] == 2 * once
    assert {side for side, algo, _ in asked if algo == "a2c"} == {"evenhand", "sb3", "cleanrl"}
    assert all(row["ratio"] == pytest.approx(100) for row in rows if "ratio" in row)
    [ours] = [row for row in rows if row.get("who") == "utilitarian" and row["algo"] == "ppo"]
    assert ours["total"] == pytest.approx(5 + (500_000 - 1000) / 1e5)
    asked.clear()
    learning.throughput("CartPole-v1", 1, 0.1, "cache", Console(quiet=True))
    assert {side for side, algo, _ in asked if algo == "ppo"} == {"evenhand", "sb3", "sbx", "cleanrl"}
    told = [" ".join(line) for line in learning_page.everyone_table(rows)]
    assert any(line.startswith("PPO, SBX 1,000 100.0 × 100.0 – 100.0 2.0 4.0") for line in told)


def test_the_page_beside_morl_baselines_says_who_is_ahead() -> None:
    mine, even, other = [[3.0, 3.0]] * 3, [[3.0, 2.0], [3.0, 4.0], [3.0, 3.0]], [[1.0, 3.0]] * 3
    found = {"evenhand": mine, "lcn": even, "nlmoppo": other, "eupg": [[4.0, 4.0]] * 3}
    said = morl.page({"deep-sea-treasure-v0": {"steps": 1000, "seeds": 3, "returns": found}})
    assert "Not measured yet: resource-gathering-v0" in said
    assert "| GGF-PPO (evenhand) | 3.000 | 3.000 … 3.000 |  | 3, 3 |" in said
    assert "| NLMOPPO | 1.667 | 1.667 … 1.667 | ahead | 1, 3 |" in said
    assert "| EUPG | 4.000 | 4.000 … 4.000 | **behind** | 4, 4 |" in said
    assert "| level |" in said


def test_who_is_ahead_is_not_left_to_rounding() -> None:
    """The same returns, added up in another order: nobody is ahead, and nobody above."""
    env, last_digit = "deep-sea-treasure-v0", 4e-15
    for change in (-last_digit, last_digit):
        found = {"steps": 1000, "seeds": 3, "returns": {"evenhand": [[0.7, 0.7]] * 3, "lcn": [[0.7 + change] * 2] * 3}}
        assert morl.compared(env, found)["lcn"].verdict == "level"
        assert not morl.above_all(env, found, ("ahead", "level"))
    found["returns"]["lcn"] = [[0.699, 0.699]] * 3
    assert morl.above_all(env, found)


def test_settings_are_chosen_by_their_places() -> None:
    scores = {"a": {"one": 3.0, "two": 0.1}, "b": {"one": 2.0, "two": 0.3}, "c": {"one": 1.0, "two": 0.2}}
    assert morl.rank_sums(scores) == {"a": 4, "b": 3, "c": 5}
    found = json.loads(morl.SEARCH.read_text())
    for method, candidates in morl.CANDIDATES.items():
        assert set(found[method]) == set(candidates)  # all were tried, and what is used is the best of them
        sums = morl.rank_sums(found[method])
        assert min(sums, key=sums.__getitem__) == morl.CHOSEN[method]


def test_everyone_stands_beside_the_right_one_of_ours() -> None:
    """Of three peers one is faster, which is said first."""
    speed = {"ours": 1e4, "theirs": 2e4, "least": 0.4, "most": 0.6, "wall_ratio": 0.5}
    facts = {"speed": 2e4, "compile": 0.0, "start": 3.0, "total": 30.0, "total_again": 28.0, "memory": 300.0}
    env = {"env": "species", "algo": "ppo"}
    rows = [env | {"peer": "sbx", "ratio": 0.5} | speed, env | {"peer": "morl", "ratio": 20.0} | speed]
    rows += [env | {"who": who} | facts for who in ("utilitarian", "sbx", "morl")]
    found = results(20.0, [9.0, 10.0, 11.0])
    found["speed"]["species"] += rows
    found["speed"]["seeds"]["others"] = {"sbx": 20.0}
    said = learning_page.page(found)
    assert said.index("PPO on species is slower than SBX's: 0.50 ×.") < said.index("## Speed")
    assert "| PPO, evenhand | 20,000 |  |  | – | 3.0 | 30 | 28 | 300 |" in said
    assert "| PPO, MORL-Baselines | 20,000 | 20.0 × | 0.4 – 0.6 | – | 3.0 | 30 | 28 | 300 |" in said
    assert "| beside SBX | 1.0 | – | – | – | 20 | 20.0 × |" in said


def test_what_was_not_measured_is_said_first() -> None:
    both = results(20.0, [9.0, 10.0, 11.0])
    half = learning_page.page({"speed": both["speed"]})
    assert half.index("nothing can be said: quality of PPO on CartPole-v1,") < half.index("## Speed")
    assert "## Quality\n\nNot measured yet.\n" in half
    assert "## Quality, early\n\nNot measured yet.\n" in half
    del both["speed"]["seeds"]
    assert "### Many seeds on two cores\n\nNot measured yet." in learning_page.page(both)
    assert "nothing can be said: species, cartpole, mountaincar, seeds, starting." in learning_page.page(
        {"quality": both["quality"]}
    )


# The page that leads to all


def solved(seconds: float, others: float | None, status: str = "optimal", states: int = 10_000) -> dict[str, Any]:
    facts = {"gap": 5e-7, "memory": 100.0, "welfare": 1.0, "queries": 3, "status": "optimal"}
    row: dict[str, Any] = {"case": {"kind": "garnet", "states": states, "objectives": 1}}
    row["ours"] = facts | {"seconds": seconds}
    return row if others is None else row | {"theirs": facts | {"seconds": others, "status": status}}


def test_one_step_of_ppo_in_operations() -> None:
    """Policy 11 → 64 → 64 → 5, critic 11 → 64 → 64 → 1; once forwards, and four times forwards and backwards."""
    policy, critic = 11 * 64 + 64 * 64 + 64 * 5, 11 * 64 + 64 * 64 + 64
    inputs = 11 * 64  # no gradient of the observations is needed
    expected = 2 * sum(net + 4 * (3 * net - inputs) for net in (policy, critic))
    assert learning.operations(learning_cases.SPECIES["ppo"]) == expected


def test_what_is_aimed_at_stands_beside_what_came_out() -> None:
    who = {"env": "species", "algo": "ppo", "who": "utilitarian", "compile": 1.0, "start": 2.0, "total": 3.0}
    who |= {"total_again": 2.0, "memory": 300.0, "speed": 1e5}
    found = results(20.0, [9.0, 10.0, 11.0])
    found["early"] = found["quality"]
    found["speed"]["species"].append(who)
    found["speed"]["seeds"]["arithmetic"] = {"one": 1e11, "two": 1e11, "per_step": 2e5}
    found["speed"]["cartpole"] = [{"env": "CartPole-v1", "algo": "ppo", "peer": "sbx", "ratio": 0.9}]
    fair = {"fruit-tree-v0": {"returns": {"evenhand": [[2.0] * 6] * 3, "nlmoppo": [[1.0] * 6] * 3}}}
    solver = {"versus": [solved(1.0, 99.0), solved(1.0, 120.0, "out of time")], "scalar": [], "alone": []}
    told = [" | ".join(line) for line in page.aims(solver, found, fair)]
    assert told[1].endswith("≥ 15 × | 20.0 × (20% of what the core can compute) | yes")
    assert told[2].endswith("≥ 25 × | 55.0 × (0% of what the cores can compute) | yes")
    assert told[4].endswith("≥ 1 × | 0.9 to 0.9 × | **no**")
    assert told[5].endswith("99 ×; 5.0e-07 | **no**")
    assert told[6].endswith("> 120 ×; 5.0e-07 | yes")
    assert told[7].endswith(
        "8 cases × 3 seeds, beside Stable-Baselines3 | none behind | 0 ahead, 8 level, 0 behind | yes"
    )
    assert told[-1].endswith("≥ 5 | 1; with intervals apart 1 | **no**")


def test_where_others_are_quicker_is_said() -> None:
    results = {
        "versus": [solved(1.0, 17.0), solved(1.0, 300.0)],
        "scalar": [solved(1.0, 0.5, states=1000), solved(1.0, 2.0), solved(1.0, 0.1, states=100_000)],
        "alone": [solved(1.0, None)],
    }
    assert exact.shortfalls(results) == [
        "Exact solver, random 10,000, D 1: 17 × as fast as HiGHS; we aim at 100 ×.",
        "Models with one reward: quantecon is 2 to 10 × as fast as the exact solver (random 1,000, random 100,000).",
    ]
    results["alone"][0]["ours"]["gap"] = 1e-5
    assert exact.shortfalls(results)[-1] == "No certificate within 1e-06 on random 10,000, D 1."


def test_how_the_cost_of_solving_grows() -> None:
    def solved(states: int, D: int, seconds: float, **more: str) -> dict[str, Any]:
        return {"case": asdict(exact.Case("garnet", states, D, **more)), "ours": {"seconds": seconds}}

    rows = [solved(1000, 2, 0.5), solved(10_000, 2, 5.0), solved(100_000, 2, 500.0), solved(1000, 4, 1.0)]
    header, two, four = exact.growth([*rows, solved(1000, 2, 99.0, criterion="average")])
    assert header == ["users", "1,000 states (s)", "10,000 states (s)", "100,000 states (s)", "power"]
    assert two == ["2", "0.50", "5.00", "500.00", "2.00"]
    assert four == ["4", "1.00", "–", "–", "–"]


def test_speeds_of_the_environments() -> None:
    plain = {"NumPy": [10.0, 20.0], "1": [100.0, 220.0], "10": [500.0, 1000.0]}
    decisions = {kind: [100.0, 100.0] for kind in environments.traffic.ROWS}
    decisions |= {"sumo-rl": [5.0, None], "sumo": [200.0, 200.0], "sumo-rl libsumo": [50.0, 50.0]}
    found = {"species": plain, "datacenter": plain, "traffic": {"speeds": decisions}}
    told = [" | ".join(line) for line in environments.table(found)]
    assert "Species conservation, evenhand | 160 | 10.5 × | 10 – 11" in told
    assert "Data centre, evenhand, 10 side by side | 750 | 50 × | 50 – 50" in told
    assert "Traffic light, sumo-rl, as it is by default | 5 | 20 × | 20 – 20" in told
    [only] = environments.shortfalls(found)
    assert only.startswith("evenhand on SUMO is 0.50 × as fast as the bare program")


# Fairness


def test_the_page_on_fairness_says_what_is_apart_and_what_is_not() -> None:
    """Two users; the base gives all to one, and the fair version is better, equal or worse."""
    study = fairness.Study("Title", "species", "About.", (), algos=("ppo", "a2c", "dqn"))
    returns = {
        ("ppo", "utilitarian"): [[0.0, 1.0], [0.1, 1.0]],
        ("ppo", "ggf"): [[0.5, 0.5], [0.51, 0.5]],
        ("a2c", "utilitarian"): [[0.0, 1.0], [0.1, 1.0]],
        ("a2c", "ggf"): [[0.0, 1.0], [0.1, 1.0]],
        ("dqn", "utilitarian"): [[0.5, 0.5], [0.51, 0.5]],
        ("dqn", "ggf"): [[-0.1, 0.2], [-0.11, 0.2]],
    }
    results = {
        "objectives": ["a", "b"],
        "seeds": 2,
        "steps": {f"{algo} {welfare}": 1000 for algo, welfare in returns},
        "tables": [
            {
                "heading": "something",
                "episodes": 3,
                "optimum": 0.52,
                "returns": [
                    {"algo": algo, "welfare": welfare, "name": f"{welfare} {algo}", "by_seed": rows}
                    for (algo, welfare), rows in returns.items()
                ],
            }
        ],
    }
    said = "\n".join(fairness.section(study, json.loads(json.dumps(results))))
    assert "PPO 1,000, A2C 1,000, DQN 1,000" in said
    assert "- GGF-PPO against its base: *GGF score not separated*" in said  # two seeds say little
    assert "- GGF-DQN against its base: **GGF score lower**, **minimum lower**." in said
    assert "| ggf ppo | 0.505 | 0.500 | 0.502 [" in said
    assert "96.5%" in said  # (⅔ · .5 + ⅓ · .505) / .52
    assert "Not measured yet" in fairness.page({})
