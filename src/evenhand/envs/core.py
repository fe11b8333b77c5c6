"""Pure environments: functions of arrays and a random key, so that whole training runs can be compiled."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float

from evenhand.types import Actions, Box, PRNGKey, Step


@runtime_checkable
class PureEnv(Protocol):
    """An environment without hidden state: `reset` and `step` are pure functions that JAX can trace.

    Episodes are not restarted by the environment: whoever steps it looks at `terminated` and `truncated`.

    An environment may answer for more, wherever it is asked for:
        action_names             what its actions are called, one for each
        baselines                simple policies of its own (see `evenhand.evaluation.policy.Decides`)
        facts(state)             by name, what else each of the D users has got in the step that led to a state;
                                 evaluations show the average over an episode, and how evenly it is shared
        reference(welfare, measure, gamma, lengths)
                                 the exact optimum for test episodes of these lengths, or in words why there is none
                                 (see `evenhand.envs.optimum`)
        action_mask(state), draw(history)   for `evenhand.envs.gym.gym_env.GymEnv`
    """

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the D users, in the order of the reward's components."""

    @property
    def observation_space(self) -> Box:
        """Observations are float32 vectors."""

    @property
    def action_space(self) -> Actions:
        """Whole numbers, or float32 vectors."""

    @property
    def reward_space(self) -> Box:
        """Bounds on the D rewards of one step."""

    def reset(self, key: PRNGKey) -> tuple[Any, Float[Array, " O"]]:
        """A first state and its observation."""

    def step(self, state: Any, action: Any, key: PRNGKey) -> Step:
        """Take an action."""
