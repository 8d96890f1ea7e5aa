"""A device loads numpy and msgspec, and none of what the server needs."""

from __future__ import annotations

import ast
import subprocess
import sys

SERVER_ONLY = {"scipy", "numba", "pandas", "kafka", "aiokafka", "confluent_kafka", "faust", "redis", "click", "rich"}

DRAW = """
import sys
import producers.device.agent, producers.device.ledger, producers.device.outbox
from estimators.mechanisms.registry import names, randomizer_of, specification_class
from estimators.exact.randomness import SecureBits
for name in names():
    specification_class(name)
grr = specification_class("grr").build(["a", "b"], [0.5, 1.0], {})
randomizer = randomizer_of(grr)
randomizer.draw(randomizer.encode(["a"], SecureBits()), SecureBits())
print(*sorted({module.split(".")[0] for module in sys.modules}))
"""


def test_devices_load_no_server_packages_with_any_mechanism() -> None:
    done = subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"numpy", "msgspec"} <= loaded
    assert not loaded & SERVER_ONLY


def test_the_device_path_imports_numpy_and_msgspec_alone() -> None:
    code = """
import sys
before = set(sys.modules)
import producers.device.agent, producers.survey.folder
from producers.survey.survey import load_survey
load_survey("deploy/surveys/browser.toml").mechanism.epsilons
import sysconfig, pathlib
site = pathlib.Path(sysconfig.get_paths()["purelib"])
third = {name.split(".")[0] for name, module in sys.modules.items()
         if name not in before and site in pathlib.Path(getattr(module, "__file__", None) or "/").parents}
print(sorted(third))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # msgspec looks for typing_extensions and does without it where it is missing.
    assert set(ast.literal_eval(result.stdout)) - {"typing_extensions"} == {"msgspec", "numpy"}
