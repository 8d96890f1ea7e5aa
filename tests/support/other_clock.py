"""A `thaw` whose machine has a wrong clock: `python -m tests.support.other_clock SECONDS worker|...`."""

import sys
import time

SECONDS = int(sys.argv.pop(1))

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + SECONDS
time.time_ns = lambda: _time_ns() + SECONDS * 1_000_000_000

from streams.cli.main import main  # noqa: E402  # everything must see the wrong clock

if __name__ == "__main__":
    main()
