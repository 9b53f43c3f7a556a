#!/bin/sh
# Builds an OCI image archive with both programs, without a container engine. Podman, Docker, containerd and kind load it.
# Usage: image.sh VTAX AGENT DIRECTORY    the archive is DIRECTORY/vtax_VERSION_ARCHITECTURE.oci.tar
#
# Identical programs yield identical bytes. All times in the archive are SOURCE_DATE_EPOCH (default: 0, i.e. 1970).
set -eu
export LC_ALL=C
vtax=$(realpath "$1")
agent=$(realpath "$2")
folder=$(realpath "$3")
cd "$(dirname "$0")/.."
version=$("$vtax" --version | cut -d' ' -f2)
seconds=${SOURCE_DATE_EPOCH:-0}
created=$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ)
# Images use Go's names of architectures.
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac
name=localhost/vtax:$version

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
image=$work/image
blobs=$image/blobs/sha256

# Prints an archive of all files in a directory. It depends only on their names, modes and contents.
pack() {
    (
        cd "$1"
        tar --format=ustar --sort=name --mtime="@$seconds" --owner=0 --group=0 --numeric-owner -cf - -- *
    )
}

# Moves a file to the blobs, which are named by their digests, and prints the digest.
store() {
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    mv "$1" "$blobs/$digest"
    echo "$digest"
}

# Prints a reference to a blob, by media type, digest and size: descriptor TYPE DIGEST
descriptor() {
    printf '"mediaType": "application/vnd.oci.image.%s", "digest": "sha256:%s", "size": %s' \
        "$1" "$2" "$(stat -c %s "$blobs/$2")"
}

install -d -m 755 "$root" "$root/usr" "$root/usr/bin" "$root/usr/share" "$root/usr/share/doc" "$root/usr/share/doc/vtax" \
    "$image" "$image/blobs" "$blobs"
install -d -m 1777 "$root/tmp"
# A new volume mounted here inherits this mode, which vtax requires.
install -d -m 755 "$root/state"
install -m 755 "$vtax" "$root/usr/bin/vtax"
install -m 755 "$agent" "$root/usr/bin/vtax-agent"
install -m 644 -t "$root/usr/share/doc/vtax" LICENSE-APACHE LICENSE-MIT crates/vtax-plot/LICENCES.txt
pack "$root" >"$work/layer"
# The layer isn't compressed, because its bytes would depend on the version of gzip. The whole archive can be
# compressed.
layer=$(store "$work/layer")

# The first process of a container ignores SIGTERM unless it has a handler, and the agent has none.
cat >"$work/config" <<CONFIG
{
  "created": "$created",
  "architecture": "$architecture",
  "os": "linux",
  "config": {
    "Entrypoint": ["/usr/bin/vtax"],
    "Env": ["PATH=/usr/bin", "VTAX_STATE=/state"],
    "WorkingDir": "/",
    "StopSignal": "SIGKILL",
    "Labels": {
      "org.opencontainers.image.title": "vtax",
      "org.opencontainers.image.description": "network and disk overhead of virtualization",
      "org.opencontainers.image.version": "$version",
      "org.opencontainers.image.created": "$created",
      "org.opencontainers.image.licenses": "Apache-2.0 OR MIT"
    }
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]},
  "history": [{"created": "$created", "created_by": "scripts/image.sh"}]
}
CONFIG
config=$(store "$work/config")
cat >"$work/manifest" <<MANIFEST
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.manifest.v1+json",
  "config": {$(descriptor config.v1+json "$config")},
  "layers": [{$(descriptor layer.v1.tar "$layer")}]
}
MANIFEST
manifest=$(store "$work/manifest")

echo '{"imageLayoutVersion": "1.0.0"}' >"$image/oci-layout"
# containerd reads the name from its own annotation, Podman from that of OCI.
cat >"$image/index.json" <<INDEX
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.index.v1+json",
  "manifests": [
    {
      $(descriptor manifest.v1+json "$manifest"),
      "platform": {"architecture": "$architecture", "os": "linux"},
      "annotations": {"io.containerd.image.name": "$name", "org.opencontainers.image.ref.name": "$name"}
    }
  ]
}
INDEX
# Docker before version 25 reads only its own format, which may refer to the same blobs.
cat >"$image/manifest.json" <<DOCKER
[{"Config": "blobs/sha256/$config", "RepoTags": ["$name"], "Layers": ["blobs/sha256/$layer"]}]
DOCKER
chmod 644 "$image"/*.json "$image/oci-layout" "$blobs"/*
archive=$folder/vtax_${version}_$architecture.oci.tar
pack "$image" >"$work/archive"
mv "$work/archive" "$archive"
echo "$archive"
