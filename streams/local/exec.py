"""Replace this process by a command that the kernel kills when its parent dies.

Run as a script, `python -I -S exec.py PARENT_PID COMMAND...`, by `streams.local.process`. A program between fork
and exec does what a `preexec_fn` would do, without running Python code in the forked copy of a process with threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends.

    Exits at once if the parent has ended already. Also for the initializer of worker processes that a child of ours
    starts by itself: `die_with_parent(os.getppid())`. Does nothing on systems other than Linux.

    Args:
        parent_pid: process id of the parent, to notice that it died before the kernel was told.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(1)


def main(argv: list[str]) -> None:
    """Tie this process to the parent `argv[1]` and become the command `argv[2:]`; exit status 127 if there is none."""
    die_with_parent(int(argv[1]))
    # Python ignores SIGPIPE, and an ignored signal stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(argv[2], argv[2:])
    except OSError as error:
        print(f"cannot run {argv[2]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv)
