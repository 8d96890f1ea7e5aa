#!/usr/bin/env bash
# What a deployed system is made of: an environment with the packages of its processes and nothing else, versions from
# constraints.txt, and a second one with the tools that look at it.
#
#   deploy/supply.sh sbom     write .cache/sbom/thaw.cdx.json, a CycloneDX list of packages, versions and licences
#   deploy/supply.sh audit    compare them with published advisories; exit status 1 if one is concerned, 75 if the
#                             service of advisories cannot be reached
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PARTS='worker,exporter,gateway,dealer,bulletin,market,device,survey,export,spark,tracing'
readonly SHIPPED=.cache/supply/shipped TOOLS=.cache/supply/tools

say() { printf 'supply: %s\n' "$*" >&2; }

# install ENVIRONMENT REQUIREMENT...: one that is newer than what it is made from stays.
install() {
    local environment="$1" made="$1.made" log="$1.log"
    shift
    if [ -e "$made" ] && [ "$made" -nt pyproject.toml ] && [ "$made" -nt constraints.txt ] &&
        [ "$made" -nt deploy/supply.sh ]; then
        return 0
    fi
    say "installing $* into $environment"
    rm -rf "$environment"
    mkdir -p "$(dirname "$environment")"
    if ! {
        python3 -m venv "$environment" &&
            "$environment/bin/python" -m pip install --constraint constraints.txt pip &&
            "$environment/bin/python" -m pip install --constraint constraints.txt --build-constraint constraints.txt "$@"
    } >"$log" 2>&1; then
        say "installation failed; the end of $log:"
        tail -n 20 "$log" >&2
        return 1
    fi
    touch "$made"
}

sbom() {
    local file=.cache/sbom/thaw.cdx.json
    mkdir -p "$(dirname "$file")"
    "$TOOLS/bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible --of JSON \
        --output-file "$file" "$SHIPPED/bin/python"
    "$TOOLS/bin/python" deploy/supply_report.py sbom "$file"
}

audit() {
    local found=.cache/supply/audit.json log=.cache/supply/audit.log
    # The project itself is on no list of packages.
    "$SHIPPED/bin/python" -m pip freeze --exclude thaw >.cache/supply/packages.txt
    rm -f "$found"
    # Its status says whether something was found; the report says more.
    "$TOOLS/bin/pip-audit" --requirement .cache/supply/packages.txt --no-deps --disable-pip --progress-spinner off \
        --format json --output "$found" >"$log" 2>&1 || true
    "$TOOLS/bin/python" deploy/supply_report.py audit "$found" "$log"
}

case "${1:-}" in
sbom | audit)
    install "$SHIPPED" ".[$PARTS]"
    install "$TOOLS" cyclonedx-bom pip-audit
    "$1"
    ;;
*)
    say "expected sbom or audit; got: ${1:-nothing}"
    exit 2
    ;;
esac
