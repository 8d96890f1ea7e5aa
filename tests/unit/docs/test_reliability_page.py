"""The page of promises names tests that exist, faults that `make chaos` knows, and faults that are told in time."""

from __future__ import annotations

import ast
import re

import pytest

from tests.chaos.faults import KINDS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/\S+\.py)::(test_\w+)`", PAGE)))


def test_the_page_names_many_tests() -> None:
    assert len(NAMED) > 15


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_named_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(), flags=re.MULTILINE)


AT_ONCE = {
    "A worker without the file of a survey that continues another": "the process that meets it ends with the message",
    "Two clusters under one Redis prefix": "the process that meets it ends with the message",
    "The metrics port of a worker is taken": "the process that meets it ends with the message",
    "A thread of a worker ends by an error": "the process that meets it ends with the message",
    "`thaw demo` ends while its worker is behind": "the process that meets it ends with the message",
    "The broker refuses the password": "the process that meets it ends with the message",
    "A right is missing at the broker": "the process that meets it ends with the message",
    "Wrong input to any command": "the process that meets it ends with the message",
    "A URL of Redis that no client can use": "the process that meets it ends with the message",
    "A password in a flag": "the process that meets it ends with the message",
    "An error in a command that nobody expected": "the process that meets it ends with the message",
    "Someone guesses at the token": "the request that is refused writes the line",
    "Slow, half-sent, over-long or too many requests": "the request that is refused writes the line",
    "A key of a wrong type in place of a simulated truth": "the call that meets it writes the line",
    "Aborted transactions": "nothing is wrong",
    "A worker takes over the partitions of another": "nothing is wrong",
    "Counters that are no numbers": "nothing is to be done",
    "An output that is closed": "nothing is to be done",
    "A survey is quiet, or has ended": "no fault of the pipeline: the survey's own limit decides",
    "One survey without reports, or one that has ended": "no fault of the pipeline: the survey's own limit decides",
    "A thread of a gateway or of a simulated fleet": "the call that meets it writes the line",
    "A slot of a cluster is half moved": "the call that meets it writes the line",
    "Fewer brokers run than": "`make cluster-test` waits until a worker says so",
    "Workers fall behind": "judged by a limit of 15 s and more, and `test_told_in_time.py` adds up the waits",
    "Damage in a window that nobody works on any more": "found by the slow round over all logs",
    "What Redis holds makes the exporter fail": "`tests/unit/streams/test_told_in_time.py` adds up the waits",
    "A survey file that is a link to nowhere": "`tests/unit/streams/test_told_in_time.py` adds up the waits",
}
"""Faults whose time no test on real services measures, and why it need not."""


def measured() -> set[str]:
    """Return the names of faults that tests wait for with `tells`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        if "tells." not in text:
            continue
        tree = ast.parse(text)
        names = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"tells.log", "tells.seen", "tells.note"}:
                name = node.args[0]
                found.add(str(names[name.id] if isinstance(name, ast.Name) else ast.literal_eval(name)))
    return found


def test_every_fault_is_told_within_ten_seconds_or_it_is_said_why_that_is_not_measured() -> None:
    rows = PAGE.split("| fault | what the operator sees where")[1].split("\n\n")[0].splitlines()[2:]
    faults = [row.removeprefix("| ").split(" | ")[0] for row in rows]
    for name in measured() | AT_ONCE.keys():
        assert any(fault.startswith(name) for fault in faults), f"{name}: no such row"
    # A longer name may begin with a shorter one.
    names = sorted(measured() | AT_ONCE.keys(), key=len, reverse=True)
    without = [fault for fault in faults if not any(fault.startswith(name) for name in names)]
    assert without == []
    assert not measured() & AT_ONCE.keys()


def test_every_fault_is_listed_and_no_other() -> None:
    table = PAGE.split("| fault |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE)) == set(KINDS)
