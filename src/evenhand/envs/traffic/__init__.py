"""Traffic lights: a junction in SUMO, whose four arms are to wait equally long."""

from evenhand.envs.traffic.demand import Arrivals
from evenhand.envs.traffic.env import TrafficEnv
from evenhand.envs.traffic.junction import ARMS, LANES, PHASES, Simulator
from evenhand.envs.traffic.policies import FixedCycle, LongestQueue

__all__ = ["ARMS", "LANES", "PHASES", "Arrivals", "FixedCycle", "LongestQueue", "Simulator", "TrafficEnv"]
