"""The command line: one file per command, found by its name.

A command parses its arguments, calls another room and prints the result; no other work is done here.
"""

import os

# Before numpy is imported: threads of OpenBLAS wait for each other in a loop, and our matrices are too small to share.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Before prometheus_client is: it would export when each counter began, which is the moment of somebody's request.
os.environ["PROMETHEUS_DISABLE_CREATED_SERIES"] = "True"
