#!/usr/bin/env bash
# Installs packages of the system if it may (as root, where there is apt-get): apt_packages.sh WHAT PACKAGE...
# This never fails: who needs them says so where they are missing.
set -euo pipefail

what=$1
shift
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing $what: apt-get install $*"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"; } > /dev/null 2>&1 || true
fi
