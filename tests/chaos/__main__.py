"""`python -m tests.chaos --kills N`, which `make chaos` runs.

Talk goes to stderr; stdout has recovery by kind of fault and ends with `kills N, reports N, lost N, double N, recovery
S s` (the longest recovery). Exit status 1 unless nothing was lost or counted twice and every kill happened.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
from collections.abc import Sequence

from streams.local.process import ServiceError, signals_as_interrupt
from tests.chaos.faults import KINDS
from tests.chaos.run import BURST, run
from tests.chaos.system import DRIVERS, StuckError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run chaos as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.split("\n\n")[1])
    parser.add_argument("--kills", type=int, default=50, help="how often something goes wrong (default 50)")
    parser.add_argument("--seed", type=int, help="what goes wrong when; a random one is printed if absent")
    parser.add_argument("--devices", type=int, default=5_000, help="devices of the vectorised fleet (default 5000)")
    parser.add_argument("--agents", type=int, default=1_000, help="real device agents (default 1000)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="faults to choose from")
    parser.add_argument(
        "--burst", type=float, default=BURST, help=f"chance that a fault meets the one before (default {BURST})"
    )
    parser.add_argument(
        "--told-within", type=float, metavar="SECONDS", help="fail if a worker's log names a fault later than that"
    )
    parser.add_argument("--driver", choices=DRIVERS, default=DRIVERS[0], help="with which workers read Kafka")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", file=sys.stderr)
    with signals_as_interrupt():
        try:
            outcome = run(
                options.kills,
                kinds=options.kinds,
                seed=seed,
                devices=options.devices,
                agents=options.agents,
                burst=options.burst,
                told_within=options.told_within,
                driver=options.driver,
            )
        except (ServiceError, StuckError) as error:
            print(error, file=sys.stderr)
            return 1
    for line in outcome.lines():
        print(line)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
