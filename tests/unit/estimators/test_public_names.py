"""`import estimators`: the names that researchers use stay, load late, and are documented."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import estimators

SIGNATURES = {
    "Coverage": (
        "(labels: 'tuple[str, ...]', truth: 'Floats', runs: 'int', inside: 'NDArray[np.int64]', mean: 'Floats', "
        "deviation: 'Floats', alpha: 'float') -> None"
    ),
    "Drawn": "(answers: 'NDArray[Any]', groups: 'NDArray[np.uint16]') -> None",
    "SecureBits": "()",
    "SeededBits": "(seed: 'int', *labels: 'str | int') -> 'None'",
    "Tally": "(counts: 'Counts', users: 'Counts') -> None",
    "add_up": "(epsilons: 'Iterable[float]') -> 'float'",
    "build": (
        "(name: 'str', values: 'Sequence[str]', ladder: 'float | Sequence[float]', /, **parameters: 'Any') "
        "-> 'Specification'"
    ),
    "chain_cost": "(epsilons: 'Sequence[float]', released: 'Iterable[int]') -> 'float'",
    "coverage": (
        "(specification: 'Specification', values: 'Iterable[Any]', *, runs: 'int' = 1000, "
        "rungs: 'int | NDArray[np.int64]' = -1, method: 'Method' = 'pooled', alpha: 'float' = 0.05, seed: 'int' = 1) "
        "-> 'Coverage'"
    ),
    "estimator_of": "(specification: 'Specification') -> 'Estimator[Any]'",
    "highest_suspicion": "(before: 'float', epsilon: 'float') -> 'float'",
    "mechanism_names": "() -> 'tuple[str, ...]'",
    "migrate": (
        "(values: 'Sequence[int] | NDArray[np.int64]', ones: 'Sequence[int] | NDArray[np.int64]', samples: 'int', /, "
        "*, permanent: 'float', sample: 'float', upper: 'float', bits: 'Bits | None' = None) -> 'NDArray[np.int64]'"
    ),
    "perturb": "(specification: 'Specification', values: 'Iterable[Any]', bits: 'Bits | None' = None) -> 'Drawn'",
    "simplex_projection": "(shares: 'ArrayLike') -> 'Floats'",
    "simulator_of": "(specification: 'Specification') -> 'Simulator[Any]'",
    "standard_errors": (
        "(specification: 'Specification', truth: 'ArrayLike', users: 'int', *, rung: 'int' = -1, "
        "population: 'Population' = 'fleet') -> 'Floats'"
    ),
    "tally_of": ("(specification: 'Specification', drawn: 'Drawn', rungs: 'int | NDArray[np.int64]' = -1) -> 'Tally'"),
}
"""What programs of others call. A change here breaks them: say so in CHANGELOG.md under Changed."""

RETURNED = {"Estimates", "Estimator", "Guarantee", "LadderError", "ParameterError", "Quantity", "Simulator"}
"""Classes whose objects are returned or raised and not built by users."""


def test_the_public_names_and_how_they_are_called_stay() -> None:
    assert set(estimators.__all__) == {*SIGNATURES, *RETURNED, "Specification"}
    for name, signature in SIGNATURES.items():
        assert str(inspect.signature(getattr(estimators, name))) == signature, name


def test_what_an_estimator_offers_stays() -> None:
    estimator = estimators.Estimator
    assert str(inspect.signature(estimator.estimate)) == (
        "(self, tally: 'Tally', *, method: 'Method' = 'pooled', population: 'Population' = 'fleet', "
        "alpha: 'float' = 0.05) -> 'Estimates'"
    )
    assert str(inspect.signature(estimator.always_valid)) == (
        "(self, tally: 'Tally', *, alpha: 'float' = 0.05) -> 'tuple[Floats, Floats] | None'"
    )
    assert {"labels", "ladder", "quantities", "epsilons", "guarantee", "rungs"} <= (
        set(dir(estimators.Specification)) | set(estimators.Specification.__annotations__)
    )


@pytest.mark.parametrize("name", estimators.__all__)
def test_a_public_name_is_documented(name: str) -> None:
    found = getattr(estimators, name)
    text = inspect.getdoc(found)
    assert text
    assert text.splitlines()[0].endswith((".", ":")), "a sentence comes first"
    if inspect.isclass(found):
        public = [part for part in vars(found) if not part.startswith("_")]
        methods = [part for part in public if inspect.isfunction(vars(found)[part])]
        assert all(inspect.getdoc(getattr(found, part)) for part in methods)


def typed_names() -> dict[str, str]:
    """Return the names that a type checker sees, each with where it comes from, as `_HOMES` writes it."""
    found = {}
    tree = ast.parse(Path(estimators.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        [alias] = statement.names
        assert statement.module
        assert alias.asname
        home = statement.module.removeprefix("estimators.")
        found[alias.asname] = home if alias.name == alias.asname else f"{home}:{alias.name}"
    return found


def test_a_type_checker_sees_the_names_that_a_program_gets() -> None:
    assert typed_names() == estimators._HOMES
    assert estimators.__all__ == sorted(estimators._HOMES)


def test_no_public_name_hides_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(estimators.__path__)}
    assert not modules & set(estimators.__all__)


def program(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_library_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import estimators\n"
        "print({name for name in set(sys.modules) - before if name.split('.')[0] not in sys.stdlib_module_names})\n"
    )
    assert program(code) == "{'estimators'}\n"


def test_a_name_loads_only_what_it_needs() -> None:
    code = "import sys, estimators; estimators.perturb; print({'numpy', 'scipy'} & set(sys.modules))"
    assert program(code) == "{'numpy'}\n"


def test_names_are_completed_and_can_all_be_imported() -> None:
    assert set(estimators.__all__) <= set(dir(estimators))
    names: dict[str, object] = {}
    exec("from estimators import *", names)
    assert set(estimators.__all__) <= set(names)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'; public names: Coverage, .*tally_of$"):
        _ = estimators.nothing  # type: ignore[attr-defined]


def test_a_missing_package_is_named_with_its_extra() -> None:
    code = (
        "import sys; sys.modules['scipy'] = None; import estimators\n"
        "try: estimators.estimator_of\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    expected = "estimators.estimator_of needs the package scipy; run: pip install 'thaw[library]'\n"
    assert program(code) == expected
