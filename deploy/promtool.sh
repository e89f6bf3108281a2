#!/usr/bin/env bash
# Provides the tool that tests the alerts for Prometheus: installs the package of the system if it may. This never fails:
# without it, these tests are skipped and say what to install.
set -euo pipefail

if ! command -v promtool > /dev/null && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing promtool: apt-get install prometheus"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends prometheus; } > /dev/null 2>&1 || true
fi
