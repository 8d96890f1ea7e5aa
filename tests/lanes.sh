#!/usr/bin/env bash
# Run pytest in parallel lanes:  tests/lanes.sh pure|real|spark... [-- PYTEST ARGUMENTS]
#
# pure: tests without real services; real: tests on real Kafka, Redis and Prometheus, in two processes that start each
# service once, since these tests wait more than they compute (docs/decisions/0440-two-processes-for-real-services.md);
# spark: tests on Apache Spark, after the pure ones, since a third lane beside them would take time from tests with
# deadlines (docs/decisions/0107-spark-has-its-own-lane.md). Every line shows its lane as it comes; each lane's whole
# output is kept in .cache/logs/, and failed tests and closing lines of all lanes are repeated at the end. Exit status 0
# only if every lane passed.
set -uo pipefail
cd "$(dirname "$0")/.."

lanes=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    lanes+=("$1")
    shift
done
[ $# -eq 0 ] || shift

# Modules are compiled once and not by each of the many processes that tests start.
unset PYTHONDONTWRITEBYTECODE

declare -A marker=([pure]="not real and not spark" [real]="real and not spark" [spark]="spark")
# Tests on real services wait for conditions with deadlines: they go first.
declare -A niceness=([pure]=5 [real]=0 [spark]=5)
# A file's tests stay together: they share what its fixtures start.
declare -A processes=([pure]="" [real]="--numprocesses=2 --dist=loadfile" [spark]="")
# What is collected: all tests are looked through in half a minute.
declare -A folder=([pure]="" [real]="" [spark]="tests/spark")
for lane in "${lanes[@]}"; do
    if [ -z "${marker[$lane]:-}" ]; then
        echo "lanes: expected pure, real or spark; got: $lane" >&2
        exit 2
    fi
done

mkdir -p .cache/logs

run_lane() {
    local lane="$1"
    shift
    # Each lane has its own cache: all would write the same list of last failures otherwise.
    # shellcheck disable=SC2086  # words of a list, or none
    nice -n "${niceness[$lane]}" .venv/bin/python -m pytest -m "${marker[$lane]}" --durations=25 ${processes[$lane]} \
        -o cache_dir=".pytest_cache/$lane" ${folder[$lane]} "$@" 2>&1 |
        tee ".cache/logs/test-$lane.log" |
        sed --unbuffered "s/^/$lane | /"
}

declare -A process=()
for lane in "${lanes[@]}"; do
    {
        if [ "$lane" = spark ] && [ -n "${process[pure]:-}" ]; then
            tail --pid="${process[pure]}" --follow /dev/null
        fi
        run_lane "$lane" "$@"
    } &
    process[$lane]=$!
done

failed=0
declare -A verdict=()
for lane in "${lanes[@]}"; do
    wait "${process[$lane]}"
    verdict[$lane]=$?
    [ "${verdict[$lane]}" -eq 0 ] || failed=1
done

echo
for lane in "${lanes[@]}"; do
    grep -E '^(FAILED|ERROR) ' ".cache/logs/test-$lane.log"
    echo "$lane (exit status ${verdict[$lane]}): $(tail -n 1 ".cache/logs/test-$lane.log")"
done
exit $failed
