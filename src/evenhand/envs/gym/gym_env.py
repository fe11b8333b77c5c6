"""Pure environments for libraries that know Gymnasium and MO-Gymnasium.

Importing this module, and registering, does not import JAX: that waits until an environment is made.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int8, UInt8

from evenhand.envs import registry
from evenhand.envs.drawing import line_plot
from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.envs.core import PureEnv
    from evenhand.types import Actions, Box
else:  # their types are JAX's; whether an environment is one is checked when it comes
    PureEnv = Actions = Box = Any


def register() -> None:
    """Tell Gymnasium the names of evenhand's environments; as often as one likes."""
    for name, _ in registry.known():
        if f"evenhand/{name}-v0" not in gymnasium.registry:
            # Gymnasium's checker complains of rewards that are vectors.
            make = functools.partial(made_for_gymnasium, name)
            gymnasium.register(f"evenhand/{name}-v0", entry_point=make, disable_env_checker=True)


def made_for_gymnasium(name: str, render_mode: str | None = None, **settings: Any) -> gymnasium.Env[Any, Any]:
    """One of our environments as a Gymnasium environment, with any of its settings."""
    make: Any = registry.factory(name, settings)[1]
    draws = "render_mode" in inspect.signature(make).parameters  # those that are Gymnasium's draw by themselves
    made = make(render_mode=render_mode) if draws else make()
    return made if isinstance(made, gymnasium.Env) else GymEnv(made, render_mode)


class GymEnv(gymnasium.Env[np.ndarray, Any]):
    """A pure environment as a Gymnasium environment, with a vector reward as MO-Gymnasium has it.

    A seed leads to the same steps as doing it by hand, `reset` and `step` being compiled by `jax.jit`:

        key = jax.random.key(seed)                                       # reset(seed=seed)
        key, sub = jax.random.split(key); state, observation = env.reset(sub)
        key, sub = jax.random.split(key); step = env.step(state, action, sub)      # each step

    `reset()` without a seed goes on with the same chain of keys; the first time, it starts from entropy.

    An environment may bring a method `draw(history) -> uint8 image [height, width, 3]`, where the history is the list
    of its states (as NumPy arrays) since the reset; without one, `render` draws the rewards so far.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, env: PureEnv, render_mode: str | None = None) -> None:
        from evenhand.envs.core import PureEnv

        if not isinstance(env, PureEnv):
            raise InputError(f"GymEnv wraps a pure environment (see evenhand.envs.core), not {type(env).__name__}.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f'render_mode must be "rgb_array" or None, not {render_mode!r}.')
        self.env = env
        self.render_mode = render_mode
        self.observation_space = _box(env.observation_space)
        self.action_space = _space(env.action_space)
        self.reward_space = _box(env.reward_space)
        self.reward_dim = len(env.objectives)
        self._compiled: _Compiled | None = None
        self._key: Any = None
        self._state: Any = None
        self._states: list[Any] = []
        self._rewards: list[Float[np.ndarray, " D"]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " O"], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is None and self._key is None:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._key = _first_key(seed)
        self._key, (self._state, observation) = self._functions().reset(self._key)
        self._states, self._rewards = [], []
        self._remember()
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[Float[np.ndarray, " O"], Any, bool, bool, dict[str, Any]]:
        """Take an action; the reward is an array `[D]`."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset the environment before the first step.")
        self._key, step = self._functions().step(self._key, self._state, checked_action(self.action_space, action))
        self._state, reward = step.state, np.array(step.reward)
        self._remember(reward)
        return np.array(step.observation), reward, bool(step.terminated), bool(step.truncated), {}

    def action_mask(self) -> Int8[np.ndarray, " A"]:
        """The actions that the environment allows now, as `action_space.sample(mask)` wants them."""
        if not isinstance(self.action_space, spaces.Discrete):
            raise InputError("only environments with a finite number of actions have a mask of them.")
        if not hasattr(self.env, "action_mask"):
            return np.ones(int(self.action_space.n), np.int8)
        return np.array(self.env.action_mask(self._state), np.int8)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """A picture of the episode so far."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array".')
            return None
        if hasattr(self.env, "draw"):
            return np.asarray(self.env.draw(self._states))
        rewards = np.array(self._rewards).reshape(-1, self.reward_dim)
        return line_plot(dict(zip(self.env.objectives, rewards.T, strict=True)), across="step")

    def _functions(self) -> _Compiled:
        if self._compiled is None:
            self._compiled = _compiled(self.env)
        return self._compiled

    def _remember(self, reward: Float[np.ndarray, " D"] | None = None) -> None:
        """Only pictures need the past."""
        if self.render_mode is None:
            return
        self._states.append(_on_host(self._state))
        if reward is not None:
            self._rewards.append(reward)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing but NumPy arrays, whatever JAX keeps them in."""
        kept = self.__dict__ | {"_compiled": None}
        if self._key is not None:
            kept |= {"_key": np.asarray(self._key), "_state": _on_host(self._state)}
        return kept


def checked_action(space: spaces.Space[Any], action: Any) -> Any:
    """An action as our environments take it; refuses what does not lie in the space, in whichever kind of number."""
    if isinstance(space, spaces.Box):
        with contextlib.suppress(TypeError, ValueError):
            action = np.asarray(action, space.dtype)
    if not space.contains(action):
        raise InputError(f"the action must lie in {space}, which {action!r} does not.")
    return action if isinstance(space, spaces.Box) else np.asarray(action, np.int32)


class _Compiled:
    """The functions of one environment with the splitting of keys, so that a step is a single call.

    Keys come and go as the numbers in them: that is quicker, and they can be pickled.
    """

    def __init__(self, env: PureEnv) -> None:
        import jax

        def split(numbers: Any) -> tuple[Any, Any]:
            key, sub = jax.random.split(jax.random.wrap_key_data(numbers))
            return jax.random.key_data(key), sub

        def reset(numbers: Any) -> tuple[Any, Any]:
            numbers, sub = split(numbers)
            return numbers, env.reset(sub)

        def step(numbers: Any, state: Any, action: Any) -> tuple[Any, Any]:
            numbers, sub = split(numbers)
            return numbers, env.step(state, action, sub)

        self.reset: Callable[..., Any] = jax.jit(reset)
        self.step: Callable[..., Any] = jax.jit(step)


def _compiled(env: Any) -> _Compiled:
    """Compiled once for all environments that are alike, where that can be told."""
    try:
        return _shared(env)
    except TypeError:  # not hashable
        return _Compiled(env)


@functools.lru_cache(maxsize=64)
def _shared(env: Any) -> _Compiled:
    return _Compiled(env)


def _first_key(seed: int) -> Any:
    """On the CPU, and what follows from it too: a single small environment is no work for an accelerator."""
    import jax

    return jax.device_put(jax.random.key_data(jax.random.key(seed)), jax.devices("cpu")[0])


def _on_host(tree: Any) -> Any:
    import jax

    return jax.tree.map(np.asarray, tree)


def _box(box: Box) -> spaces.Box:
    return spaces.Box(box.low, box.high, dtype=np.float32)


def _space(actions: Actions) -> spaces.Space[Any]:
    from evenhand.types import Discrete

    return spaces.Discrete(actions.n) if isinstance(actions, Discrete) else _box(actions)
