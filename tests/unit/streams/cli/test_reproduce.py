"""`thaw reproduce`: the list, verdicts, exit status, CSV, JSON and pictures, with experiments that take no time."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from estimators.reproduction.registry import EXPERIMENTS
from streams.reproduction import published
from tests.unit.streams.cli import test_main

FAST = ["pan-table-1", "pan-fig-1b", "pan-worked"]
_ESCAPE = r"\x1b\[[?\d;]*[a-zA-Z]"
Reproduce = Callable[..., tuple[int, str, str]]


@pytest.fixture
def reproduce(capfd: pytest.CaptureFixture[str]) -> Reproduce:
    """Run the command and return exit status, stdout and stderr."""
    return lambda *arguments: test_main.run(capfd, "reproduce", *arguments)


def test_list_prints_one_experiment_a_line_and_no_header(reproduce: Reproduce) -> None:
    status, out, _ = reproduce("list")
    assert status == 0
    assert out.splitlines() == list(EXPERIMENTS)


def test_every_number_has_a_verdict_or_says_that_none_is_published(reproduce: Reproduce) -> None:
    status, out, _ = reproduce(*FAST, "--quick")
    assert status == 0, out
    assert "explained (pan-4)" in out
    assert "no published number at hand" in out
    last = out.splitlines()[-1]
    assert last.startswith(f"experiments {len(FAST)}, reproduced ")
    assert "differs 0" in last


def test_a_number_that_nothing_explains_fails(reproduce: Reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    known = published.load_published()
    known["pan.sec42.three"] = replace(known["pan.sec42.three"], value=[0.36, 0.69])
    monkeypatch.setattr("streams.cli.reproduce.load_published", lambda: known)
    status, out, _ = reproduce("pan-worked", "--quick")
    assert status == 1
    assert "differs 1" in out.splitlines()[-1]


def test_csv_json_and_pictures_say_the_same(reproduce: Reproduce, tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(reproduce(*FAST, "--quick", "--csv")[1])))
    shown = json.loads(reproduce(*FAST, "--quick", "--json", "--svg", str(tmp_path))[1])
    numbers = [number for experiment in shown["experiments"] for number in experiment["numbers"]]
    assert [row["number"] for row in table] == [number["what"] for number in numbers]
    assert Counter(row["verdict"] for row in table) == Counter(number["verdict"] for number in numbers)
    # Listed in the order of `thaw reproduce list`.
    assert [experiment["name"] for experiment in shown["experiments"]] == [name for name in EXPERIMENTS if name in FAST]
    assert shown["counts"]["differs"] == 0
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(FAST)


def test_the_seed_decides_what_is_drawn(reproduce: Reproduce) -> None:
    first, same, other = (reproduce("pan-worked", "--quick", "--csv", "--seed", seed)[1] for seed in "112")
    assert first == same != other


def test_an_unknown_name_is_refused_with_a_remedy(reproduce: Reproduce) -> None:
    status, _, err = reproduce("pan-fig-9")
    assert status == 2
    assert "thaw reproduce list" in err


def test_on_a_terminal_the_bar_names_what_runs_and_leaves_the_tables_whole() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "streams.cli", "reproduce", *FAST, "--quick"]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as running:
        os.close(theirs)
        text = "".join(_until_closed(ours))
    os.close(ours)
    assert running.returncode == 0, text
    order = [name for name in EXPERIMENTS if name in FAST]
    painted = re.findall(r"([\w-]+) [━╸╺ ]+ (\d)/3", re.sub(_ESCAPE, "", text))
    assert {(name, int(done)) for name, done in painted} == {(name, i) for i, name in enumerate(order)}
    left = _left_on_screen(text)
    assert "━" not in "".join(left)
    assert [line.split("  ")[0] for line in left if "  Pan, " in line] == order
    assert left[-1].startswith("experiments 3, reproduced ")


def _until_closed(terminal: int) -> Iterator[str]:
    """Yield what is written to a terminal until nobody has it open, which Linux reports as an error."""
    reader = codecs.getincrementaldecoder("utf-8")()
    with contextlib.suppress(OSError):
        while read := os.read(terminal, 1 << 16):
            yield reader.decode(read)


def _left_on_screen(text: str) -> list[str]:
    """Return the lines that a terminal shows in the end, of what moves the cursor only by lines and to their start."""
    lines, row, column = [""], 0, 0
    for part in re.findall(rf"{_ESCAPE}|[\r\n]|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines if line.strip()]
