"""The code on docs/library.md prints and draws what the page shows. (docs/tour.md: tests/integration/test_tour.py.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.pages import Block, PageError, Shell, blocks, commands, compare, pictures, run_page
from tests.support.deadline import until
from tests.support.paths import ROOT
from tests.support.pictures import assert_same_picture


def test_the_library_page_prints_and_draws_what_it_shows(tmp_path: Path) -> None:
    run_page("library.md", tmp_path)
    drawn = pictures("library.md", tmp_path)
    assert [path.name for path in drawn] == ["comparison.svg"]
    for path, text in drawn.items():
        assert_same_picture(path, text)


def test_ten_lines_are_ten_lines() -> None:
    [first, *_] = [block for block in blocks((ROOT / "docs" / "library.md").read_text()) if block.language == "python"]
    lines = [line for line in first.text.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) == 10


def test_blocks_and_commands_are_found() -> None:
    page = "text\n```console\n$ one \\\n  two\nout\n\nmore\n$ three\n```\n\n```python\nx = 1\n```\n"
    first, second = blocks(page)
    assert second == Block("python", "x = 1\n", 11)
    assert list(commands(first)) == [("one \\\n  two", "out\n\nmore\n"), ("three", "")]


def test_three_dots_stand_for_anything_and_other_differences_are_told() -> None:
    compare("here", "a ... c\n", "a  1 2 3\n 4 c\n")
    compare("here", "", "")
    with pytest.raises(PageError, match=r"(?s)here.*the page says:\na \.\.\. c.*printed was:\na b"):
        compare("here", "a ... c\n", "a b\n")
    with pytest.raises(PageError):
        compare("here", "", "something")


def test_the_tour_does_not_wait_for_a_demo_that_has_ended(tmp_path: Path) -> None:
    typed = [typed for block in blocks((ROOT / "docs" / "tour.md").read_text()) for typed, _ in commands(block)]
    assert not [line for line in typed if line.startswith(("until", "while"))], "a loop without a limit: use `soon`"
    with Shell(tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        assert shell.run(next(line for line in typed if line.startswith("soon()"))) == (0, "")
        assert shell.run("echo the broker did not start > demo.log; false & wait") == (0, "")
        status, printed = shell.run("soon grep -qs '^for other commands' demo.log && cat demo.log")
        assert status == 1
        assert printed.endswith("the broker did not start\n")
        assert shell.run("sleep 600 & soon grep -qs broker demo.log") == (0, "")


def test_a_shell_keeps_its_state_and_ends_what_it_started(tmp_path: Path) -> None:
    with Shell(tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        assert shell.run("cd / && x=7; false") == (1, "")
        assert shell.run('printf "$PWD $x"') == (0, "/ 7")
        assert shell.run("sleep 600 & echo $!")[0] == 0
        child = int(shell.run("echo $!")[1])
    stat = Path(f"/proc/{child}/stat")
    until(lambda: not stat.exists() or stat.read_text().split()[2] == "Z", 30, "the sleeping child to end")
