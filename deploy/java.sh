#!/usr/bin/env bash
# Sees to the Java that Spark needs: installs the system's package where that is allowed, else says what to install.
# All that needs no Spark works without, so that this never fails.
set -euo pipefail

found() { python -m clonos_py.spark.java > /dev/null 2>&1; }

if ! found && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing Java for Spark: apt-get install default-jre-headless"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends default-jre-headless; } > /dev/null 2>&1 || true
fi
python -m clonos_py.spark.java > /dev/null || true
