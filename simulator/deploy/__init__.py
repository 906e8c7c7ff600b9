"""Rank to device, group to traffic on links, ranks to classes."""

from simulator.deploy.deployment import SCALE, Deployment, GroupClass, RankClass, Traffic
from simulator.deploy.placement import deploy

__all__ = ["SCALE", "Deployment", "GroupClass", "RankClass", "Traffic", "deploy"]
