"""SBX's side of `learning.py` (see peer.py): Stable-Baselines3 with learning compiled by JAX. It has no A2C."""

import os
from typing import Any

from peer import make_env, serve, timed

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"  # one thread, as for everyone


def speed(case: dict[str, Any]) -> dict[str, float]:
    import jax
    import sbx
    from flax import linen
    from stable_baselines3.common.vec_env import DummyVecEnv

    compiling = [0.0]

    def note(event: str, seconds: float, **_: Any) -> None:
        compiling[0] += seconds * event.startswith("/jax/core/compile/")

    jax.monitoring.register_event_duration_secs_listener(note)
    given = {name: value for name, value in case["settings"].items() if name not in ("normalise", "falling")}
    envs, network = given.pop("n_envs"), given.pop("policy_kwargs")
    network["activation_fn"] = {"tanh": linen.tanh, "relu": linen.relu}[network["activation_fn"]]
    if case["algo"] == "dqn":
        del given["max_grad_norm"]  # SBX's DQN leaves gradients as long as they are
    learner = {"ppo": sbx.PPO, "dqn": sbx.DQN}[case["algo"]]
    model = learner(
        "MlpPolicy", DummyVecEnv([make_env(case)] * envs), policy_kwargs=network, seed=case["seed"], verbose=0, **given
    )

    def learn(steps: int) -> int:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=before == 0)
        return model.num_timesteps - before

    return timed(case, learn) | {"compile": compiling[0]}


if __name__ == "__main__":
    serve({"speed": speed})
