"""Environments of other people: what evenhand needs to know about a Gymnasium environment before it runs one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from jaxtyping import Float32

from evenhand.children import needs_main
from evenhand.envs.gym.conversions import Act, Bounded, Conversions, Ending, Numbered, Observe, act_of
from evenhand.envs.gym.failures import blamed
from evenhand.errors import InputError
from evenhand.types import Actions, Box, Discrete

WITHOUT_EFFECT_ON_REWARDS = (wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)


@dataclass(frozen=True)
class HostEnv:
    """A Gymnasium environment: how to make it, and how its observations and actions become an agent's.

    Nothing runs here; `evenhand.envs.gym.vector.VectorEnv` steps N of them, in this process or in others.
    """

    name: str
    make: Callable[[], Any]
    """Makes one `gymnasium.Env`; must be picklable to be used in worker processes."""
    observe: Observe
    act: Act
    objectives: tuple[str, ...]
    """The names of the D users, in the order of the reward's components."""
    reward_space: Box
    """Bounds on the D rewards of one step, infinite where the environment does not tell."""
    scalar_reward: bool
    """Whether the reward is a plain number, so that there is only one user."""
    one_per_process: bool = False
    """Whether a process can hold only one of them, as with simulators that keep their state in global variables."""
    action_names: tuple[str, ...] | None = None
    """What the actions are called, if the environment says so."""
    real_time: bool = False
    """Whether its clock goes on between steps, so that several cannot be stepped by turns."""
    time_limit: int | None = None
    """After how many steps Gymnasium ends an episode, if it does."""
    baselines: tuple[Any, ...] = ()
    """Simple policies that the environment brings along (see `evenhand.evaluation.policy.Decides`)."""
    reference: Callable[..., Any] | None = None
    """Its exact optimum, if it knows that (see `evenhand.envs.core.PureEnv`)."""

    @staticmethod
    def of(make: Callable[[], Any], name: str | None = None) -> HostEnv:
        """Make one environment to look at it."""
        called = name or str(getattr(make, "__name__", "the environment"))
        with blamed(f"{called} could not be made"):
            env = make()
        if not isinstance(env, gymnasium.Env):
            raise InputError(f"{called} should make a gymnasium.Env, but made a {type(env).__name__}.")
        return HostEnv.from_example(env, make, name)

    @staticmethod
    def from_example(env: Any, make: Callable[[], Any], name: str | None = None) -> HostEnv:
        """Describe what `make` makes by one environment that it has made, which is closed afterwards."""
        try:
            return _describe(env, make, name or _name(env, make))
        finally:
            env.close()

    @property
    def observation_space(self) -> Box:
        """Observations, flattened to float32 vectors."""
        return Box(self.observe.low, self.observe.high)

    @property
    def action_space(self) -> Actions:
        """Whole numbers from 0, or flat float32 vectors."""
        if isinstance(self.act, Bounded):
            low, high = self.act.low, self.act.high
            return Box.of(low.reshape(-1), high.reshape(-1), low.size)
        return Discrete(self.act.n)

    @property
    def D(self) -> int:
        """The number of objectives."""
        return len(self.objectives)

    @property
    def conversions(self) -> Conversions:
        """What a process needs to step such environments."""
        return Conversions(self.name, self.make, self.observe, self.act, self.objectives)

    def flatten(self, observation: Any) -> Float32[np.ndarray, " O"]:
        """The environment's observation as an agent sees it."""
        return self.observe(observation)

    def native_action(self, action: Any) -> Any:
        """An agent's action as the environment expects it, clipped to the bounds."""
        return self.act(np.asarray(action)[None])[0]

    def ending_after(self, steps: int) -> HostEnv:
        """The same, but that no episode is longer than so many steps."""
        if self.time_limit is not None and self.time_limit <= steps:
            return self
        return replace(self, make=Ending(self.make, steps), time_limit=steps)

    def check_picklable(self) -> None:
        """Refuse what cannot be sent to worker processes."""
        try:
            ForkingPickler.dumps(self.conversions)  # as they will be sent
        except Exception as error:
            raise InputError(
                f"{self.name} cannot be sent to worker processes ({error}): make it with a function or class defined "
                "at the top of a module, without lambdas and open files among its arguments, or use workers=0."
            ) from error
        if needs_main(self.conversions) and not hasattr(sys.modules["__main__"], "__file__"):
            raise InputError(
                f"{self.name} is defined in an interactive session, where worker processes cannot find it: put it into "
                "a module and import it from there, or use workers=0."
            )


def _name(env: Any, make: Callable[[], Any]) -> str:
    if env.spec is not None:
        return str(env.spec.id)
    return str(getattr(make, "__name__", type(env.unwrapped).__name__))


def _describe(env: Any, make: Callable[[], Any], name: str) -> HostEnv:
    try:
        observe, act = Observe.of(env.observation_space), act_of(env.action_space)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    space, certain = declared_reward_space(env, name)
    scalar = space is not None and space.shape == ()
    if space is None or not certain:
        shape = _reward_shape(env, name)
        scalar = shape == ()
        if space is not None and (int(np.prod(space.shape)), scalar) != (int(np.prod(shape)), space.shape == ()):
            space = None  # a wrapper has changed the reward since
    else:
        shape = space.shape
    D = 1 if scalar else int(shape[0])
    rewards = Box.of(-np.inf, np.inf, D) if space is None else Box.of(space.low.ravel(), space.high.ravel(), D)
    own = env.unwrapped
    brought = getattr(own, "baselines", ())
    return HostEnv(
        name,
        make,
        observe,
        act,
        _objectives(env, D, name),
        rewards,
        scalar,
        one_per_process=bool(getattr(own, "one_per_process", False)),
        real_time=bool(getattr(own, "real_time", False)),
        action_names=_action_names(own, act),
        time_limit=time_limit(env),
        baselines=brought if isinstance(brought, tuple) else (),
        reference=getattr(own, "reference", None),
    )


def time_limit(env: Any) -> int | None:
    """After how many steps a wrapper of Gymnasium's ends an episode; None if there is none."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrappers.TimeLimit):
            limits.append(int(env._max_episode_steps))
        env = env.env
    return min(limits, default=None)


def declared_reward_space(env: Any, name: str) -> tuple[spaces.Box | None, bool]:
    """The reward space, as MO-Gymnasium wants it declared, and whether no wrapper can have changed the reward."""
    certain = True
    while True:
        space = env.__dict__.get("reward_space") if isinstance(env, gymnasium.Wrapper) else None
        if not isinstance(env, gymnasium.Wrapper):
            space = getattr(env, "reward_space", None)
        if space is not None:
            if not isinstance(space, spaces.Box) or len(space.shape) > 1 or 0 in space.shape:
                raise InputError(f"{name}: reward_space must be a gymnasium Box of shape (D,), not {space}.")
            return space, certain
        if not isinstance(env, gymnasium.Wrapper):
            return None, False
        certain = certain and isinstance(env, WITHOUT_EFFECT_ON_REWARDS)
        env = env.env


def _reward_shape(env: Any, name: str) -> tuple[int, ...]:
    """The shape of the reward of one trial step."""
    with blamed(f"{name} has no reward_space, and a trial step to count its rewards failed"):
        env.reset(seed=0)
        env.action_space.seed(0)
        reward = env.step(env.action_space.sample())[1]
        shape = np.asarray(reward, np.float64).shape
    if len(shape) > 1 or 0 in shape:
        raise InputError(f"{name}: the reward of a step must be one number or D numbers, not shape {shape}.")
    return shape


def _action_names(env: Any, act: Act) -> tuple[str, ...] | None:
    """Names are taken only where there is one for each action, counted from 0."""
    names = getattr(env, "action_names", None)
    if not isinstance(act, Numbered) or act.start or not isinstance(names, tuple | list) or len(names) != act.n:
        return None
    return tuple(map(str, names))


def _objectives(env: Any, D: int, name: str) -> tuple[str, ...]:
    given = getattr(env.unwrapped, "objectives", None)
    if given is None or (D == 1 and len(given) != 1):  # several users' rewards may have been joined by a wrapper
        return tuple(f"user {i + 1}" for i in range(D))
    names = tuple(str(objective) for objective in given)
    if len(names) != D:
        raise InputError(f"{name}: there are {len(names)} names in `objectives`, but {D} rewards.")
    return names
