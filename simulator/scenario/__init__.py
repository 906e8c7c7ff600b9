"""Scenarios: from YAML to a model, a cluster and a plan, with the origin of every value."""

from simulator.scenario.loading import load, with_changes
from simulator.scenario.scenario import ClusterSpec, Scenario

__all__ = ["ClusterSpec", "Scenario", "load", "with_changes"]
