"""Scenario files: what an experiment sends, in tokens and slots, before any scaling."""

from __future__ import annotations

from workers.scenarios.schema import Scenario, ScenarioError, Sizes, load, names

__all__ = ["Scenario", "ScenarioError", "Sizes", "load", "names"]
