"""A device that dies anywhere never emits two different answers for one rung, and never spends unrecorded budget.

Failure: two different bytes for one (token, rung); a rung on the wire that the ledger did not charge; a rung that never
arrives although the device was restarted. Not a failure: the same bytes twice.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from producers.device.budget import cost_units
from producers.device.ledger import Ledger
from producers.survey.survey import Survey
from producers.wire import frames as wire
from tests.integration.device_stories import STORIES, Story, live
from tests.support.deadline import until
from tests.support.surveys import survey

CRASHED = 137
DEVICE_FILES = (
    *(f"device/{name}.py" for name in ("agent", "ledger", "outbox", "budget", "accounts", "sending", "encoding")),
    *(f"device/{name}.py" for name in ("standing", "bulletins", "continuing", "sealing", "drawing")),
    *(f"device/{name}.py" for name in ("releasing", "stored", "wishing")),
    "device_stories.py",
)


def emitted(path: Path, asked: Survey) -> dict[tuple[bytes, int], set[bytes]]:
    """All frames that ever left, whole, by (token, rung)."""
    raw = path.read_bytes() if path.exists() else b""
    found: dict[tuple[bytes, int], set[bytes]] = {}
    for header in wire.headers(raw) if raw else ():
        assert isinstance(header, wire.Header)
        columns = wire.columns(raw, header, asked.layout)
        frame = raw[header.start : header.start + header.length]
        found.setdefault((columns.tokens[0].tobytes(), int(columns.rungs[0])), set()).add(frame)
    return found


def check(folder: Path, asked: Survey) -> int:
    """Assert what must hold at any moment; returns the number of different (token, rung) seen."""
    seen = emitted(folder / "wire", asked)
    torn = {key: frames for key, frames in seen.items() if len(frames) > 1}
    assert not torn, f"two different answers for one rung: {torn}"
    charged: dict[bytes, int] = {}
    for token, rung in seen:
        if asked.standing:
            # Windows repeat the answers of the value, and all of them together cost what one costs.
            assert len({frame[56:57] for (_, other), frames in seen.items() if other == rung for frame in frames}) == 1
            token = b"value"
        if rung < asked.mechanism.rungs:
            charged[token] = max(charged.get(token, 0), cost_units(asked.mechanism.epsilons[rung]))
    if (folder / "ledger").exists():
        ledger = Ledger(folder / "ledger")
        assert sum(charged.values()) <= ledger.odometer().spent_units
        if ledger.consent:
            of_chains = ledger.connection.execute("SELECT SUM(charged_units) FROM chains").fetchone()[0] or 0
            assert ledger.odometer().spent_units == of_chains
        assert ledger.odometer().spent_units == sum(account.spent_units for account in ledger.accounts().values())
        ledger.close()
    else:
        assert not seen
    return len(seen)


def die_at_line(number: int) -> Any:
    """Return a trace function that ends the process before the given line of the device's own code is run."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.endswith(DEVICE_FILES):
            return None
        if event == "line":
            seen += 1
            if seen == number:
                os._exit(CRASHED)
        return trace

    return trace


def rungs_of(folder: Path, asked: Survey) -> set[int]:
    return {rung for _, rung in emitted(folder / "wire", asked)}


def crash_in_child(folder: Path, story: Story, line: int) -> bool:
    """Live in a forked process that dies at a line; tells whether it came that far."""
    child = os.fork()
    if child == 0:
        sys.settrace(die_at_line(line))
        story.then(folder, story.asked)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, CRASHED)
    return code == CRASHED


def crash_at_every_line(root: Path, story: Story) -> int:
    """Kill a device before each line of its code in turn, start it again, check; returns how often it was killed."""
    asked = story.asked
    line = 1
    while True:
        folder = root / str(line)
        folder.mkdir()
        story.first(folder, asked)
        if not crash_in_child(folder, story, line):
            return line - 1
        before = emitted(folder / "wire", asked)
        check(folder, asked)
        story.then(folder, asked)
        check(folder, asked)
        assert rungs_of(folder, asked) <= story.rungs
        assert len(rungs_of(folder, asked)) >= min(len(story.rungs), 2)
        after = emitted(folder / "wire", asked)
        assert len({token for token, _ in after}) == story.tokens
        assert all(after[key] == frames for key, frames in before.items())
        shutil.rmtree(folder)
        line += 1


@pytest.mark.parametrize(
    ("story", "least"),
    [
        ("clock", 500),
        ("demand", 100),
        ("wish", 100),
        ("off", 100),
        ("unlock", 100),
        ("withdraw", 100),
        ("withdraw, unreleased", 100),
        ("off, withdrawing", 100),
        ("standing", 100),
        ("bulletin", 100),
        ("continued", 100),
    ],
)
def test_a_device_killed_before_any_line_repeats_itself_and_nothing_else(story: str, least: int) -> None:
    # In memory where there is such a folder: a thousand crashes would otherwise wait for the disk at every commit. In a
    # process of its own: forking all that the test runner has loaded takes several times as long.
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        result = subprocess.run(
            [sys.executable, "-m", __name__, folder, story], capture_output=True, text=True, check=False
        )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > least, "the trace function saw too few lines to mean anything"


def endless() -> Survey:
    """A survey whose budget and retention no test uses up."""
    return survey(lifetime="lifetime = 1000000", retention='retention = "90d"')


CHILD = """
import sys, time
from pathlib import Path
from producers.device.agent import Device
from tests.integration.device_stories import FileTransport
from tests.integration.test_device_crash import endless
from tests.support.surveys import WEEK, WINDOW_MS

folder, asked = Path(sys.argv[1]), endless()
with Device(folder / "ledger", [asked], FileTransport(folder / "wire"), lifetime_epsilon=float("inf")) as device:
    for step in range(int(sys.argv[2]), 10**9):
        now_ms = WEEK + step * 10_000
        if step % 6 == 0:
            device.observe(asked, "green", now_ms)
        device.tick(now_ms)
        (folder / "step").write_text(str(step))
"""


def test_a_device_killed_by_the_system_repeats_itself_and_nothing_else(tmp_path: Path) -> None:
    """Real processes and kill -9, at random moments."""
    asked = endless()
    chosen = random.Random(1)
    start = 0
    for _ in range(6):
        (tmp_path / "step").unlink(missing_ok=True)
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CHILD,
                str(tmp_path),
                str(start),
            ]
        )
        try:
            until((tmp_path / "step").exists, 60, "the device's first step")
            aim = time.monotonic() + chosen.uniform(0.0, 0.2)
            until(lambda aim=aim: time.monotonic() >= aim, 10, "the chosen moment")  # type: ignore[misc]
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        # Go back a little, as a device does whose last steps were not noted: it must repeat, not redraw.
        start = max(int((tmp_path / "step").read_text() or start) - 12, 0)
        check_emitted_only(tmp_path, asked)
    assert len(emitted(tmp_path / "wire", asked)) > 10


def check_emitted_only(folder: Path, asked: Survey) -> None:
    assert not [key for key, frames in emitted(folder / "wire", asked).items() if len(frames) > 1]


def test_the_check_would_notice_a_redrawn_answer(tmp_path: Path) -> None:
    """The mutant: a device that forgets its ledger but keeps its secret."""
    asked = survey()
    for _ in range(40):
        live(tmp_path, asked)
        ledger = Ledger(tmp_path / "ledger")
        ledger.connection.execute("DELETE FROM chains")
        ledger.close()
    with pytest.raises(AssertionError, match="two different answers for one rung"):
        check(tmp_path, asked)


if __name__ == "__main__":
    print(crash_at_every_line(Path(sys.argv[1]), STORIES[sys.argv[2]]))
