#!/usr/bin/env bash
# Provides the Java that Spark needs: installs the package of the system if it may, else prints what to install.
# This never fails, since everything except Spark works without Java.
set -euo pipefail

found() { python -m clonos_py.runtime.java > /dev/null 2>&1; }

if ! found && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing Java for Spark: apt-get install default-jre-headless"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends default-jre-headless; } > /dev/null 2>&1 || true
fi
python -m clonos_py.runtime.java > /dev/null || true
