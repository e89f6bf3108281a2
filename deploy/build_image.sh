#!/usr/bin/env bash
# Builds the image of deploy/Dockerfile with buildah, as root without a daemon, on a base that debootstrap makes, and runs
# an example in it as its user: deploy/build_image.sh [TAG]. CA_FILE: the certificates that pip trusts, behind a proxy.
set -euo pipefail

tag=${1:-clonos}
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
mounts=()
if [ -n "${CA_FILE:-}" ]; then
    printf '[global]\ncert = /run/ca.crt\n' > "$work/pip.conf"
    mounts+=(--volume "$CA_FILE:/run/ca.crt:ro" --volume "$work/pip.conf:/etc/pip.conf:ro")
fi

if ! buildah images --quiet clonos-base > /dev/null 2>&1; then
    debootstrap --variant=minbase bookworm "$work/base" > "$work/debootstrap.log"
    base=$(buildah from scratch)
    buildah add --quiet "$base" "$work/base" / > /dev/null
    buildah commit --quiet --rm "$base" clonos-base > /dev/null
fi
cd "$root"
rm -f dist/*.whl
.tools/bin/uv build --quiet --wheel --out-dir dist
buildah build --build-arg BASE=localhost/clonos-base "${mounts[@]}" --file deploy/Dockerfile --tag "$tag" .
container=$(buildah from "$tag")
trap 'buildah rm "$container" > /dev/null; rm -rf "$work"' EXIT
buildah run "$container" -- clonos run /opt/clonos/examples/word_count.py --out /tmp/words
buildah run "$container" -- sh -ec 'test "$(id -u)" = 1000; for name in wget ray clonos; do command -v "$name"; done'
buildah run "$container" -- python -c 'import ray.dashboard.modules.job.sdk, obstore, uvicorn, kafka'
