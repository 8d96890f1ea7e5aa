"""`python -m streams.local kafka`: one service in the foreground (`make kafka`)."""

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from streams.local.kafka import ApacheKafka
from streams.local.process import POLL_SECONDS, ServiceError, signals_as_interrupt
from streams.local.redis import Redis


def main(argv: Sequence[str] | None = None) -> int:
    """Run one service in the foreground until Ctrl-C or SIGTERM; its address is printed on stdout."""
    parser = argparse.ArgumentParser(prog="python -m streams.local", description=main.__doc__)
    parser.add_argument("service", choices=["kafka", "redis"])
    parser.add_argument("--port", type=int, help="Kafka's port (default: a free one)")
    parser.add_argument("--folder", type=Path, help="keep the data here (default: a temporary folder)")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    service = (
        ApacheKafka(folder=options.folder, port=options.port)
        if options.service == "kafka"
        else Redis(folder=options.folder)
    )
    with contextlib.suppress(KeyboardInterrupt), signals_as_interrupt():
        try:
            with service:
                print(service.address, flush=True)
                while service.alive():
                    time.sleep(POLL_SECONDS)
                service.check()
        except ServiceError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
