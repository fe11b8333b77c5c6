"""sumo-rl on our junction, in the peers' virtual environment: reads what to do as JSON, prints CPU-seconds as JSON.

LIBSUMO_AS_TRACI in the environment makes it use libsumo; SUMO_HOME must be set.
"""

import json
import resource
import sys


def cpu_seconds() -> float:
    """Of this process and of the simulators that it started and that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    asked = json.load(sys.stdin)
    from sumo_rl import SumoEnvironment

    before = cpu_seconds()
    env = SumoEnvironment(
        net_file=asked["net"],
        route_file=asked["routes"],
        single_agent=True,
        num_seconds=asked["decisions"] * 14,
        delta_time=14,
        yellow_time=4,
        min_green=10,
        max_depart_delay=0,
        waiting_time_memory=asked["decisions"] * 14,
        time_to_teleport=-1,
        sumo_seed=asked["seed"],
        sumo_warnings=False,
        additional_sumo_cmd="--no-step-log",
        add_system_info=asked["info"],
        add_per_agent_info=asked["info"],
    )
    env.reset()
    steps, truncated = 0, False
    while not truncated:
        *_, truncated, _ = env.step(steps // asked["hold"] % 4)
        steps += 1
    env.close()
    print(json.dumps({"cpu": cpu_seconds() - before, "decisions": steps}), file=sys.__stdout__)


if __name__ == "__main__":
    main()
