"""Data-centre bandwidth: hosts share a fat-tree network, and a controller says how fast each may send."""

from evenhand.envs.datacenter.env import Datacenter, DatacenterState
from evenhand.envs.datacenter.policies import ConstantRates
from evenhand.envs.datacenter.topology import FatTree, path_table

__all__ = ["ConstantRates", "Datacenter", "DatacenterState", "FatTree", "path_table"]
