"""How good a policy is: the vector returns of whole episodes, and what they mean for fairness."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from evenhand import metrics
from evenhand.agents.distributions import to_environment
from evenhand.envs import resolve
from evenhand.envs.core import PureEnv
from evenhand.envs.host import HostEnv
from evenhand.envs.stepping import CUT_OFF, blamed
from evenhand.envs.vector import VectorEnv
from evenhand.errors import InputError
from evenhand.loops import Task
from evenhand.types import Box, PRNGKey
from evenhand.welfare import Welfare

Measure = Literal["average", "return", "discounted"]
MOST_STEPS = 100_000
"""Where an episode of a pure environment is cut off if nothing else ends it."""
MOST_HOST_STEPS = 10_000
"""The same for those of other people, which are stepped one by one; not if the environment has a time limit."""
TEST_SEED = 2**31
"""Added to seeds of evaluations, so that they are none of those used in training."""
LARGEST_SEED = 2**62
PULSE = 64
"""Steps between two reports of how far test episodes have come."""


class Outcome(NamedTuple):
    """What E episodes came to, for each of D users."""

    total: Float[Array, "E D"]
    """Sums of rewards."""
    discounted: Float[Array, "E D"]
    """(1 − γ) Σ γᵗ r_t."""
    length: Int[Array, " E"]
    terminated: Bool[Array, " E"]
    """Whether the episode ended by itself, not by a time limit."""
    cut_off: Bool[Array, " E"]
    """Whether nothing had ended it."""
    facts: Mapping[str, Float[Array, "E D"]] = MappingProxyType({})
    """Sums of what else a pure environment says of each step (see `evenhand.envs.core.PureEnv`)."""


@dataclass(frozen=True)
class Evaluation:
    """Test episodes of one policy."""

    objectives: tuple[str, ...]
    total: Float[np.ndarray, "E D"]
    """Sums of the rewards of each episode."""
    discounted: Float[np.ndarray, "E D"]
    """(1 − γ) Σ γᵗ r_t of each episode: the size of a reward, weighted towards the start."""
    length: Integer[np.ndarray, " E"]
    terminated: Bool[np.ndarray, " E"]
    gamma: float
    seed: int
    name: str = "policy"
    facts: Mapping[str, Float[np.ndarray, " E"]] = field(default_factory=dict)
    """What else the environment said of each episode at its end: the numbers in its info's "summary"."""

    @property
    def episodes(self) -> int:
        """How many were played."""
        return len(self.length)

    @property
    def natural_measure(self) -> Measure:
        """Sums where episodes end by themselves, rewards per step where only a time limit ends them."""
        return "return" if self.terminated.any() else "average"

    def of(self, measure: Measure | None = None) -> Float[np.ndarray, "E D"]:
        """What each user got in each episode, by the measure asked for."""
        measure = measure or self.natural_measure
        if measure == "average":
            return self.total / np.maximum(self.length, 1)[:, None]
        if measure not in ("return", "discounted"):
            raise InputError(f'a measure is "average", "return" or "discounted", not {measure!r}.')
        return self.total if measure == "return" else self.discounted

    def returns(self, measure: Measure | None = None) -> Float[np.ndarray, " D"]:
        """What each user got, on average over the episodes."""
        return self.of(measure).mean(axis=0)

    def summary(self, welfare: Welfare, measure: Measure | None = None) -> dict[str, float]:
        """The welfare of the mean returns (for a GGF the paper's "GGF score"), and how evenly they are shared out."""
        z = self.returns(measure)
        return {
            "welfare": _value(welfare, z),
            "average": float(z.mean()),
            "minimum": float(z.min()),
            "maximum": float(z.max()),
            "cv": metrics.cv_of_one_sign(z),
        }

    def record(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {
            "name": self.name,
            "objectives": list(self.objectives),
            "gamma": self.gamma,
            "seed": self.seed,
            "total": self.total.tolist(),
            "discounted": self.discounted.tolist(),
            "length": self.length.tolist(),
            "terminated": self.terminated.tolist(),
            "facts": {name: values.tolist() for name, values in self.facts.items()},
        }

    @staticmethod
    def from_record(record: Any) -> Evaluation:
        """An evaluation from what `record` made of it; the error says what it cannot be."""
        if not isinstance(record, Mapping):
            raise InputError("it should be an object with the entries of an evaluation.")
        try:
            objectives, facts = record["objectives"], record.get("facts", {})
            arrays = {name: np.array(record[name], float) for name in ("total", "discounted", "length", "terminated")}
            counted = {name: np.array(values, float) for name, values in dict(facts).items()}
            gamma, seed, name = float(record["gamma"]), record["seed"], record["name"]
        except KeyError as error:
            raise InputError(f"it has no {error}.") from None
        except (TypeError, ValueError, OverflowError):
            raise InputError("its numbers are none, or not as many in each row.") from None
        if not isinstance(objectives, list) or not objectives or not all(isinstance(x, str) for x in objectives):
            raise InputError("its objectives should be a list of names.")
        E = arrays["length"].size
        shapes = {"total": (E, len(objectives)), "discounted": (E, len(objectives)), "length": (E,), "terminated": (E,)}
        for what, array in (arrays | counted).items():
            if array.shape != shapes.get(what, (E,)) or not E or (what in arrays and not np.isfinite(array).all()):
                raise InputError(f"its {what} should be finite numbers for each of its episodes and users.")
        length, terminated = arrays["length"], arrays["terminated"]
        if (length < 0).any() or (length != np.rint(length)).any() or (length >= 2**53).any():
            raise InputError("the lengths of its episodes should be whole numbers.")
        if not np.isin(terminated, (0, 1)).all() or not 0 <= gamma <= 1:
            raise InputError("its discount should lie in [0, 1], and its episodes have terminated or not.")
        if not isinstance(seed, int) or not isinstance(name, str):
            raise InputError("its seed should be a whole number, and its name a text.")
        return Evaluation(
            objectives=tuple(objectives),
            total=arrays["total"],
            discounted=arrays["discounted"],
            length=length.astype(int),
            terminated=terminated.astype(bool),
            gamma=gamma,
            seed=seed,
            name=name,
            facts=counted,
        )


def _value(welfare: Welfare, z: Float[np.ndarray, " D"]) -> float:
    if welfare.needs_positive and z.min() <= 0:
        return -float("inf")
    return float(welfare.value(z))


# Policies


@runtime_checkable
class Acts(Protocol):
    """A policy that JAX can trace: actions of the environment for flat observations."""

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """Actions for N observations."""


@runtime_checkable
class Decides(Protocol):
    """A policy that may look at the clock as well, such as a fixed cycle; for arrays of NumPy and of JAX alike."""

    name: str

    def decide(self, observation: Any, step: Any) -> Any:
        """Actions for N observations, each so many steps after the beginning of its episode."""


def chosen_actions(task: Task, agent: Any, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
    """Actions of the environment, by what an agent has learnt."""
    return to_environment(task.actions, task.agent.act(task.config, task.problem, agent, observation, key))


@dataclass(eq=False)
class Policy:
    """What was learnt, as a function from observations to actions.

    Policies of PPO and A2C are random where that is fair; `policy.seed(n)` makes their draws reproducible.
    """

    env: PureEnv | HostEnv
    task: Task
    agent: Any
    """The part of the agent's state that acting needs."""
    name: str = "policy"
    _key: Any = field(default=None, repr=False)
    _draws: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.seed(0)
        self._act = jax.jit(self._acted)
        self._mode = jax.jit(self._most_probable)

    def seed(self, seed: int) -> None:
        """Begin a new sequence of random draws."""
        self._key, self._draws = jax.random.key(seed), 0

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """Actions of the environment for N flat observations; can be traced."""
        return chosen_actions(self.task, self.agent, observation, key)

    def _acted(self, agent: Any, observation: Array, key: PRNGKey, draw: Array) -> Array:
        return chosen_actions(self.task, agent, observation, jax.random.fold_in(key, draw))

    def _most_probable(self, agent: Any, observation: Array) -> Array:
        task = self.task
        return to_environment(task.actions, task.agent.mode(task.config, task.problem, agent, observation))

    def __call__(self, observation: Any, deterministic: bool = False) -> Any:
        """The environment's own action for one of its observations, or actions for a batch of flat ones [N, O].

        deterministic: the most probable action instead of a random draw; a fair policy may then no longer be fair.
        """
        flat = self._flat(observation)
        batch = np.atleast_2d(flat)
        if deterministic:
            actions = np.asarray(self._mode(self.agent, batch))
        else:
            self._draws += 1
            actions = np.asarray(self._act(self.agent, batch, self._key, np.uint32(self._draws)))
        if flat.ndim == 2:
            return actions
        if isinstance(self.env, HostEnv):
            return self.env.native_action(actions[0])
        return actions[0] if isinstance(self.task.actions, Box) else int(actions[0])

    def _flat(self, observation: Any) -> Float[np.ndarray, "*N O"]:
        size = self.task.observation_size
        if isinstance(observation, (np.ndarray, jax.Array)) and observation.ndim in (1, 2):
            array = np.asarray(observation, np.float32)
            if array.shape[-1] == size:
                return array
        if isinstance(self.env, HostEnv):
            return self.env.flatten(observation)
        raise InputError(f"an observation of {self.env} is a vector of {size} numbers.")


@dataclass(frozen=True)
class RandomPolicy:
    """Every action equally likely."""

    env: PureEnv | HostEnv
    name: str = "random"

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """Draw actions."""
        space, N = self.env.action_space, observation.shape[0]
        if isinstance(space, Box):
            low, high = (jnp.broadcast_to(jnp.asarray(bound), (N, space.n)) for bound in (space.low, space.high))
            return jax.random.uniform(key, (N, space.n), minval=low, maxval=high)
        return jax.random.randint(key, (N,), 0, space.n)


@dataclass(frozen=True)
class ConstantPolicy:
    """Always the same action; of a box, the point at this share of the way from its low to its high end."""

    env: PureEnv | HostEnv
    action: int | float | Int[Array, ""]

    @property
    def name(self) -> str:
        """For tables."""
        return f"always {self.action}"

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """The action."""
        space, N = self.env.action_space, observation.shape[0]
        if isinstance(space, Box):
            point = space.low + self.action * (space.high - space.low)
            return jnp.broadcast_to(jnp.asarray(point, jnp.float32), (N, space.n))
        return jnp.full(N, self.action, jnp.int32)


# Playing


def evaluate_policy(
    env: Any,
    policy: Any,
    episodes: int = 50,
    gamma: float = 0.99,
    seed: int = 0,
    arguments: Mapping[str, Any] | None = None,
    most_steps: int | None = None,
    *,
    workers: int = 0,
    step_timeout: float | int | None = None,
    say: Callable[[str], None] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Evaluation:
    """Play whole test episodes with a policy.

    env: an environment, or its name (see `evenhand.envs.resolve`), with `arguments` for it.
    policy: what `evenhand.load` gives; "random"; a number, for always that action; one of the environment's own simple
        policies, itself or by its name; or a function from one observation of the environment to one of its actions.
    seed: the same seed gives the same episodes; it is none of those used in training.
    most_steps: where to cut off episodes that nothing else ends; by default after 10,000 steps if the environment is
        stepped one by one and has no time limit, and else after 100,000.
    workers, step_timeout: processes that step environments which may crash or hang, and the seconds that a step may
        take (see `evenhand.envs.vector.VectorEnv`); an episode that is lost with its process is played again. Not for
        policies that are functions.
    say: told, in a sentence, if episodes had to be cut off; by default it is logged.
    progress: told now and then which share of the episodes is done, where they are stepped one by one.
    """
    env = resolve(env, arguments or {})
    most = _most_steps(env) if most_steps is None else most_steps
    if episodes < 1 or most < 1:
        raise InputError(f"there must be at least one episode and one step, not {episodes} and {most}.")
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"the seed of test episodes must lie between 0 and 2^62, not {seed}.")
    policy = as_policy(env, policy)
    facts: Facts = {}
    if isinstance(env, PureEnv) and isinstance(policy, Acts | Decides):
        outcome = _play_pure(env, policy, episodes, gamma, seed, most)
        facts = _spreads(outcome)
    else:
        host = env if isinstance(env, HostEnv) else _hosted(env)
        if isinstance(policy, Acts | Decides):
            stepped = partial(VectorEnv, host.ending_after(most), workers=workers, step_timeout=step_timeout)
            played = _play_host(host, policy, episodes, gamma, seed, most, stepped, progress)
        else:
            played = _play_single(host, policy, episodes, gamma, seed, most, progress)
        outcome, facts = _summed_up(played)
    if outcome.cut_off.any():
        (say or logging.getLogger("evenhand").warning)(
            f"test episodes of {getattr(env, 'name', type(env).__name__)} that nothing had ended were cut off after "
            f"{most:,} steps: they end where they should if the environment has a time limit (max_episode_steps, or "
            "gymnasium.wrappers.TimeLimit)."
        )
    for name, values in (("total", outcome.total), ("discounted", outcome.discounted)):
        if not np.isfinite(values).all():
            raise InputError(f"the {name} rewards of an episode are not finite: look at the environment's rewards.")
    return Evaluation(
        env.objectives,
        np.asarray(outcome.total, float),
        np.asarray(outcome.discounted, float),
        np.asarray(outcome.length),
        np.asarray(outcome.terminated),
        gamma,
        seed,
        str(getattr(policy, "name", getattr(policy, "__name__", "policy"))),
        facts,
    )


def _most_steps(env: PureEnv | HostEnv) -> int:
    if isinstance(env, HostEnv):
        return MOST_HOST_STEPS if env.time_limit is None else env.time_limit
    return MOST_STEPS


POLICIES = 'give what evenhand.load gives, "random", an action, or a function from observations to actions'


def as_policy(env: PureEnv | HostEnv, policy: Any) -> Any:
    """What `evaluate_policy` makes of a policy, by its name or as it is; refuses what does not suit the environment."""
    if isinstance(policy, str):
        own = {simple.name: simple for simple in getattr(env, "baselines", ())}
        if policy not in ("random", *own):
            also = f"; by name there are {', '.join(own)}" if own else ""
            raise InputError(f"{policy!r} is no policy: {POLICIES}{also}.")
        return RandomPolicy(env) if policy == "random" else own[policy]
    if isinstance(policy, (int, float, np.number)) and not isinstance(policy, bool):
        n = env.action_space.n
        if not isinstance(env.action_space, Box) and not (int(policy) == policy and 0 <= policy < n):
            raise InputError(f"there is no action {policy}: they are 0 … {n - 1}.")
        return ConstantPolicy(env, int(policy) if int(policy) == policy else float(policy))
    if isinstance(policy, Policy) and (policy.env.observation_space.n, policy.env.action_space) != (
        env.observation_space.n,
        env.action_space,
    ):
        raise InputError("the policy was trained with other observations or actions than this environment has.")
    if not isinstance(policy, Acts | Decides) and not callable(policy):
        raise InputError(f"{policy!r} is no policy: {POLICIES}.")
    return policy


def _play_pure(
    env: PureEnv, policy: Acts | Decides, episodes: int, gamma: float, seed: int, most_steps: int
) -> Outcome:
    key = jax.random.key(TEST_SEED + seed)
    if isinstance(policy, Policy | RandomPolicy | ConstantPolicy):
        kind, given = _parts(policy)
        try:
            play = _player(env, kind, episodes)  # type: ignore[arg-type]  # see below
        except TypeError:  # somebody's environment or welfare that cannot be hashed
            play = _player.__wrapped__(env, kind, episodes)
        return jax.device_get(play(given, key, gamma, most_steps))
    # Somebody's own policy may have changed since it was last played, and is looked at anew.
    once = jax.jit(partial(play_pure, env, _choosing(policy), episodes=episodes))
    return jax.device_get(once(key=key, gamma=gamma, most=most_steps))


def _parts(policy: Policy | RandomPolicy | ConstantPolicy) -> tuple[Any, Any]:
    """What is compiled of a policy, and what is handed over: seeds, and always this or that action, share a program."""
    if isinstance(policy, Policy):
        return policy.task, policy.agent
    if isinstance(policy, ConstantPolicy) and not isinstance(policy.env.action_space, Box):
        return dataclasses.replace(policy, action=0), np.int32(policy.action)
    return policy, None


@lru_cache(maxsize=16)
def _player(env: PureEnv, kind: Task | RandomPolicy | ConstantPolicy, episodes: int) -> Callable[..., Outcome]:
    """Plays with any policy of a kind (see `_parts`)."""

    def play(given: Any, key: PRNGKey, gamma: Array, most: Array) -> Outcome:
        def act(observation: Array, step: Array, key: PRNGKey) -> Any:
            if isinstance(kind, Task):
                return chosen_actions(kind, given, observation, key)
            policy = kind if given is None else dataclasses.replace(kind, action=given)
            return policy.act(observation, key)

        return play_pure(env, act, key, episodes, gamma, most)

    return jax.jit(play)


def play_pure(
    env: PureEnv, act: Callable[[Any, Any, PRNGKey], Any], key: PRNGKey, episodes: int, gamma: Any, most: Any
) -> Outcome:
    """Play whole episodes side by side, each at most `most` steps long; can be traced.

    act: actions for observations, steps since the episodes began, and a key.
    """
    resetting, key = jax.random.split(key)
    envs, observation = jax.vmap(env.reset)(jax.random.split(resetting, episodes))
    nothing = jnp.zeros((episodes, len(env.objectives)))
    nowhere = jnp.zeros(episodes, bool)
    facts = jax.vmap(env.facts) if hasattr(env, "facts") else lambda states: {}
    Carry = tuple[Any, Array, Array, Outcome, Array, PRNGKey, Array]

    def goes_on(carry: Carry) -> Bool[Array, ""]:
        return jnp.any(~carry[2]) & (carry[6] < most)

    def step(carry: Carry) -> Carry:
        envs, observation, over, outcome, discount, key, t = carry
        key, acting, stepping = jax.random.split(key, 3)
        chosen = act(observation, jnp.full(episodes, t), acting)
        after = jax.vmap(env.step)(envs, chosen, jax.random.split(stepping, episodes))
        reward = jnp.where(over[:, None], 0.0, after.reward)
        outcome = Outcome(
            outcome.total + reward,
            outcome.discounted + discount * reward,
            outcome.length + jnp.where(over, 0, 1),
            outcome.terminated | (after.terminated & ~over),
            ~(over | after.terminated | after.truncated),
            jax.tree.map(lambda sum, now: sum + jnp.where(over[:, None], 0.0, now), outcome.facts, facts(after.state)),
        )
        over = over | after.terminated | after.truncated
        return after.state, after.observation, over, outcome, discount * gamma, key, t + 1

    counted = jax.tree.map(jnp.zeros_like, facts(envs))
    start = Outcome(nothing, nothing, jnp.zeros(episodes, jnp.int32), nowhere, ~nowhere, counted)
    discount = 1.0 - jnp.asarray(gamma, jnp.float32)
    return jax.lax.while_loop(goes_on, step, (envs, observation, nowhere, start, discount, key, jnp.array(0)))[3]


Facts = Mapping[str, np.ndarray]


def _spreads(outcome: Outcome) -> Facts:
    """Of each fact about users, what they came to in each episode: the average, the extremes and the CV."""
    steps = np.maximum(outcome.length, 1)[:, None]
    found: dict[str, np.ndarray] = {}
    for name, sums in outcome.facts.items():
        of_episodes = [metrics.spread(name, row) for row in np.asarray(sums, float) / steps]
        found |= {key: np.array([episode[key] for episode in of_episodes]) for key in of_episodes[0]}
    return found


class _Episode(NamedTuple):
    """What one episode came to."""

    total: Float[np.ndarray, " D"]
    discounted: Float[np.ndarray, " D"]
    length: int
    terminated: bool
    cut_off: bool
    info: Mapping[str, Any]


Share = Callable[[float], None]


def _play_host(
    host: HostEnv,
    policy: Acts | Decides,
    episodes: int,
    gamma: float,
    seed: int,
    most: int,
    stepped: Callable[..., VectorEnv],
    progress: Share | None,
) -> list[_Episode]:
    """One episode after another in each of a few environments, so that long ones count as much as short ones."""
    N, D = 1 if host.real_time else min(episodes, 8), host.D
    act = _acting(policy)
    key = jax.random.key(TEST_SEED + seed)
    left = np.array([episodes // N + (i < episodes % N) for i in range(N)])
    done: list[_Episode] = []
    total, discounted = np.zeros((N, D)), np.zeros((N, D))
    discount, length = np.full(N, 1 - gamma), np.zeros(N, int)
    with stepped(N=N, seed=TEST_SEED + seed) as envs:
        observation = envs.reset()
        t = 0
        while left.any():
            t += 1
            after = envs.step(act(observation, length, jax.random.fold_in(key, t)))
            total += after.reward
            discounted += discount[:, None] * after.reward
            discount *= gamma
            length += 1
            ended = after.terminated | after.truncated
            infos = dict(zip(np.flatnonzero(ended), after.info, strict=True))
            for i, info in infos.items():
                if left[i] and "lost" not in info:  # an episode whose process died is played again
                    left[i] -= 1
                    terminated, cut_off = bool(after.terminated[i]), CUT_OFF in info
                    done.append(
                        _Episode(total[i].copy(), discounted[i].copy(), int(length[i]), terminated, cut_off, info)
                    )
                total[i], discounted[i], discount[i], length[i] = 0, 0, 1 - gamma, 0
            observation = after.observation
            if progress is not None and t % PULSE == 0:
                progress((len(done) + float(length[left > 0].sum()) / most) / episodes)
    return done


def _choosing(policy: Acts | Decides) -> Callable[[Any, Any, PRNGKey], Any]:
    """Actions for observations, steps since the episodes began, and a key."""
    if isinstance(policy, Decides):
        return lambda observation, step, key: policy.decide(observation, step)
    return lambda observation, step, key: policy.act(observation, key)


def _acting(policy: Acts | Decides) -> Callable[[Any, Any, PRNGKey], np.ndarray]:
    """The same on the host."""
    act = _choosing(policy) if isinstance(policy, Decides) else jax.jit(_choosing(policy))
    return lambda observation, step, key: np.asarray(act(observation, step, key))


def _play_single(
    env: HostEnv, policy: Any, episodes: int, gamma: float, seed: int, most: int, progress: Share | None
) -> list[_Episode]:
    """With a policy that takes the environment's own observations one at a time."""
    made, done = env.ending_after(most).make(), []
    try:
        for episode in range(episodes):
            where = f"test episode {episode} of {env.name}"
            with blamed(f"{where} could not be begun"):
                observation, info = made.reset(seed=(TEST_SEED + 1000 * seed + episode) % 2**32)
            total, discounted, discount, ended, length = np.zeros(env.D), np.zeros(env.D), 1 - gamma, False, 0
            terminated = False
            while not ended:
                action = policy(observation)
                with blamed(f"step {length + 1} of {where} failed"):
                    observation, reward, terminated, truncated, info = made.step(action)
                total += reward
                discounted += discount * np.asarray(reward)
                discount *= gamma
                length += 1
                ended = terminated or truncated
                if progress is not None and length % PULSE == 0:
                    progress((episode + length / most) / episodes)
            done.append(_Episode(total, discounted, length, bool(terminated), CUT_OFF in info, info))
    finally:
        made.close()
    return done


def _summed_up(done: list[_Episode]) -> tuple[Outcome, Facts]:
    """Episodes as arrays; of the facts, those that every episode has."""
    columns: Any = (np.array(column) for column in list(zip(*done, strict=True))[:5])
    summaries = [episode.info.get("summary") for episode in done]
    facts: Facts = {}
    told = [summary for summary in summaries if isinstance(summary, Mapping)]
    if told and len(told) == len(done):
        common = [name for name in told[0] if all(name in summary for summary in told)]
        facts = {name: np.array([summary[name] for summary in told], float) for name in common}
    return Outcome(*columns), facts


def _hosted(env: PureEnv) -> HostEnv:
    from evenhand.envs.gym import GymEnv

    return HostEnv.of(partial(GymEnv, env), type(env).__name__)
