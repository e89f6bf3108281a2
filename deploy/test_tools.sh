#!/usr/bin/env bash
# Provides the programs that some tests need: Chromium for the page of a run, promtool for the alerts. Installs the packages
# of the system if it may. This never fails: without them, these tests are skipped and say what to install.
set -euo pipefail

missing=()
command -v promtool > /dev/null || missing+=(prometheus)
command -v chromium > /dev/null || missing+=(chromium)

if [ "${#missing[@]}" -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing for the tests: apt-get install ${missing[*]}"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"; } > /dev/null 2>&1 || true
fi
