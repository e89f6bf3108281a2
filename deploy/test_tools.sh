#!/usr/bin/env bash
# Provides the programs that some tests need: Chromium for the page of a run, promtool for the alerts, the servers
# of PostgreSQL, NATS and MQTT. Without them these tests are skipped and say what to install.
set -euo pipefail

PATH=$PATH:/usr/sbin
missing=()
command -v promtool > /dev/null || missing+=(prometheus)
command -v chromium > /dev/null || missing+=(chromium)
compgen -G "/usr/lib/postgresql/*/bin/initdb" > /dev/null || command -v initdb > /dev/null || missing+=(postgresql)
command -v nats-server > /dev/null || missing+=(nats-server)
command -v mosquitto > /dev/null || missing+=(mosquitto)
if [ "${#missing[@]}" -gt 0 ]; then
    "$(dirname "$0")/apt_packages.sh" "programs for tests" "${missing[@]}"
fi
