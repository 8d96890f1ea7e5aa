#!/usr/bin/env bash
# Run pytest in parallel lanes:  tests/lanes.sh pure|real|spark... [-- PYTEST ARGUMENTS]
#
# pure: tests without real services; real: tests on real Kafka, Redis and Prometheus, all in one process that starts
# each service once; spark: tests on Apache Spark. Every line shows its lane as it comes; each lane's whole output is kept in
# .cache/logs/, and failed tests and closing lines of all lanes are repeated at the end. Exit status 0 only if every lane passed.
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

declare -A marker=([pure]="not real and not spark" [real]="real" [spark]="spark")
# Tests on real services wait for conditions with deadlines: they go first.
declare -A niceness=([pure]=5 [real]=0 [spark]=0)
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
    nice -n "${niceness[$lane]}" .venv/bin/python -m pytest -m "${marker[$lane]}" --durations=25 \
        -o cache_dir=".pytest_cache/$lane" "$@" 2>&1 |
        tee ".cache/logs/test-$lane.log" |
        sed --unbuffered "s/^/$lane | /"
}

declare -A process=()
for lane in "${lanes[@]}"; do
    run_lane "$lane" "$@" &
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
