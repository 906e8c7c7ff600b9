"""Scenarios: from YAML to a model, a cluster and a plan, with the origin of every value."""

from simulator.scenario.loading import load, with_changes
from simulator.scenario.reference import Inexpressible, load_cases
from simulator.scenario.scenario import ClusterSpec, Scenario

__all__ = ["ClusterSpec", "Inexpressible", "Scenario", "load", "load_cases", "with_changes"]
