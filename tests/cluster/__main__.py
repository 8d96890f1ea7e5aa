"""`python -m tests.cluster --kills N`, which `make cluster-test` runs.

Three brokers (replication 3, two of which must have a report), a Redis Cluster of three masters with replicas, three
workers under load. Talk goes to stderr; stdout has recovery by kind of fault and ends with the line of `make chaos`:
`kills N, reports N, lost N, double N, recovery S s`. Exit status 1 unless nothing was lost or counted twice.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
from collections.abc import Sequence

from streams.local.process import ServiceError, signals_as_interrupt
from tests.chaos.run import run
from tests.chaos.system import DRIVERS, StuckError
from tests.cluster.faults import KINDS
from tests.cluster.system import ClusterSystem


def main(arguments: Sequence[str] | None = None) -> int:
    """Break the clusters as the arguments say; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("--kills", type=int, default=8, help="how often something goes wrong (default 8)")
    parser.add_argument("--seed", type=int, help="what goes wrong when; a random one is printed if absent")
    parser.add_argument("--devices", type=int, default=500, help="devices of the vectorised fleet (default 500)")
    parser.add_argument("--agents", type=int, default=40, help="real device agents (default 40)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="faults to choose from")
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
                burst=0.0,
                make=ClusterSystem,
                known=KINDS,
                guest=0.0,
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
