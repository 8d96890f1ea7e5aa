"""`python -m streams.cli`: the command line, where the script `thaw` is not on the PATH."""

from streams.cli.main import main

if __name__ == "__main__":  # processes that a fleet spawns import this module under another name
    main()
