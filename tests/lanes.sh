#!/usr/bin/env bash
# Run pytest in parallel lanes:  tests/lanes.sh pure|real... [-- PYTEST ARGUMENTS]
#
# pure: tests without real services; real: tests on real Kafka, Redis and Prometheus, all in one process that starts
# each service once. Every line shows its lane as it comes; each lane's whole output is kept in .cache/logs/, and the closing
# lines of all lanes are repeated at the end. Exit status 0 only if every lane passed.
set -uo pipefail
cd "$(dirname "$0")/.."

lanes=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    lanes+=("$1")
    shift
done
[ $# -eq 0 ] || shift

declare -A marker=([pure]="not real" [real]="real")
for lane in "${lanes[@]}"; do
    if [ -z "${marker[$lane]:-}" ]; then
        echo "lanes: expected pure or real; got: $lane" >&2
        exit 2
    fi
done

mkdir -p .cache/logs

run_lane() {
    local lane="$1"
    shift
    # Each lane has its own cache: both would write the same list of last failures otherwise.
    .venv/bin/python -m pytest -m "${marker[$lane]}" --durations=25 \
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
    echo "$lane (exit status ${verdict[$lane]}): $(tail -n 1 ".cache/logs/test-$lane.log")"
done
exit $failed
