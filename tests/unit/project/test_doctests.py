"""Every example in a docstring of the estimators runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import estimators

MODULES = sorted(module.name for module in pkgutil.walk_packages(estimators.__path__, "estimators."))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
