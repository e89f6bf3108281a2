#!/usr/bin/env bash
# Provides the Java that Spark needs: installs the package of the system if it may, else prints what to install.
# This never fails, since everything except Spark works without Java.
set -euo pipefail

if ! python -m clonos_py.runtime.java > /dev/null 2>&1; then
    "$(dirname "$0")/apt_packages.sh" "Java for Spark" default-jre-headless
fi
python -m clonos_py.runtime.java > /dev/null || true
