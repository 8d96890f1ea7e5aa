"""`python -m tests.secure`, which `make secure-test` runs.

Starts Kafka (TLS, SCRAM, access control) and Redis (TLS, access control) with certificates of its own, runs every
command of `thaw` that talks to services as a user with the documented rights, then without them. Talk goes to stderr;
stdout ends with `passed: N commands with their rights, N refusals in one sentence`. Exit status 1 if anything differs.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from streams.local.process import ServiceError, signals_as_interrupt
from tests.secure.allowed import Course, left_out
from tests.secure.moved import move
from tests.secure.refusals import refuse_all
from tests.secure.system import secured_system
from tests.support.paths import ROOT


def main() -> int:
    """Run everything; return the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="thaw-secure-"))

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        with signals_as_interrupt(), secured_system(folder) as system:
            shutil.copy(ROOT / "tests" / "browser" / "surveys" / "canary.toml", system.settings.surveys)
            course = Course(system, tell)
            course.play()
            refusals = refuse_all(system, tell)
            move(course)
            assert not left_out(course.done), f"commands that no user with rights has run: {left_out(course.done)}"
            lacked = system.refused_by_redis()
            assert not lacked, f"Redis refused to users with the documented rights: {lacked}"
    except (AssertionError, ServiceError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"passed: {len(course.done)} commands with their rights, {refusals} refusals in one sentence")
    return 0


if __name__ == "__main__":
    sys.exit(main())
