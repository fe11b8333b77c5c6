"""How much waiting can any controller of the junction save? Looking ahead in the stand-in itself, beside PPO.

    python benchmarks/traffic_ceiling.py RUN [--seed 0] [--episodes 8]

RUN is a run of PPO on traffic with the utilitarian welfare. At each decision the controller that looks ahead tries
every phase in the stand-in, from the true state of all cars and not only from what is observed, over sixteen futures of
sixteen decisions, in which PPO decides; and takes the phase with the least waiting. What it saves beside PPO was left
to be learnt; if it saves nothing, PPO is about as good as can be. Both meet the same traffic.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import evenhand as eh
from evenhand.envs import resolve
from evenhand.stats import interval

FUTURES, AHEAD, DECISIONS, PHASES = 16, 16, 390, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--seed", type=int, default=0, help="which seed of the run")
    parser.add_argument("--episodes", type=int, default=8)
    asked = parser.parse_args()
    env: Any = resolve("traffic-standin", {})
    policy = eh.resume(asked.run).policy(asked.seed)
    draws = jax.random.key(asked.seed)  # PPO's own draws are the same in all futures

    def decide(observation: Any) -> Any:
        return policy.act(observation[None], draws)[0]

    def future(state: Any, phase: Any, keys: Any) -> Any:
        """Minus the seconds waited, if this phase comes next and PPO decides after it."""
        first = env.step(state, phase, keys[0])

        def go_on(now: Any, key: Any) -> Any:
            after = env.step(now[0], decide(now[1]), key)
            return (after.state, after.observation), after.reward.sum()

        _, rewards = jax.lax.scan(go_on, (first.state, first.observation), keys[1:])
        return first.reward.sum() + rewards.sum()

    def look_ahead(state: Any, key: Any) -> Any:
        keys = jax.random.split(key, FUTURES * AHEAD).reshape(FUTURES, AHEAD)
        of_phase = jax.vmap(lambda phase: jax.vmap(lambda k: future(state, phase, k))(keys).mean())
        return of_phase(jnp.arange(PHASES)).argmax()

    def episode(key: Any, ahead: bool) -> Any:
        def step(now: Any, key: Any) -> Any:
            phase = look_ahead(now[0], jax.random.fold_in(key, 1)) if ahead else decide(now[1])
            after = env.step(now[0], phase, key)
            return (after.state, after.observation), after.reward.sum()

        _, rewards = jax.lax.scan(step, env.reset(key), jax.random.split(key, DECISIONS))
        return -rewards.mean()

    keys = jax.random.split(jax.random.key(1), asked.episodes)
    waited = [np.asarray(jax.jit(jax.vmap(lambda key, a=a: episode(key, a)))(keys)) for a in (False, True)]
    for name, seconds in zip(("PPO", "looking ahead"), waited, strict=True):
        print(f"{name}: {seconds.mean():,.0f} seconds waited per decision")
    saved = 1 - waited[1] / waited[0]
    low, high = interval(saved)
    print(f"Looking ahead saves {saved.mean():.1%} [{low:.1%}, {high:.1%}] beside PPO, {asked.episodes} episodes.")


if __name__ == "__main__":
    main()
