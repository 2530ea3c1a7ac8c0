"""Fixtures of the estimators, whose fits these tests watch."""

from ..estimators.conftest import data, model, quick

__all__ = ["data", "model", "quick"]
