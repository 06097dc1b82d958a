#!/usr/bin/env bash
# Builds the archives of a release into dist/VERSION: slipway for linux and darwin on amd64 and arm64, with an SBOM of each (CycloneDX), and the
# checksums of all files. The same commit and version give the same bytes.
#
#   deploy/dev/release.sh VERSION        VERSION is a semantic version with a leading v: v0.9.0, v0.9.0-rc.1
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/.dev/bin
platforms="linux/amd64 linux/arm64 darwin/amd64 darwin/arm64"
# Flags of a release: no path of this machine, and neither symbols nor debug information. The tags are those of every other build (lib/go.sh).
# shellcheck source=deploy/dev/lib/go.sh
. "$here/lib/go.sh"
export GOFLAGS="-trimpath -tags=$go_tags" GOWORK=off

fail() { echo "release: $*" >&2; exit 1; }

check() {
  local commit
  [[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "VERSION is '$version', not a semantic version: give one such as VERSION=v0.9.0"
  tar --version 2>/dev/null | grep -q 'GNU tar' || fail "GNU tar is missing, which writes the same archive each time: put it first on PATH as tar"
  [ -z "$(git -C "$root" status --porcelain)" ] || fail "the working tree has changes that no commit has: commit or stash them first"
  commit=$(git -C "$root" rev-parse HEAD)
  if git -C "$root" rev-parse -q --verify "refs/tags/$version" >/dev/null && [ "$(git -C "$root" rev-parse "$version^{commit}")" != "$commit" ]; then
    fail "tag $version is another commit than HEAD: check that tag out, or give another VERSION"
  fi
}

# archive OS ARCH: the binary, kubectl's plugin (the same binary by another name), manifests, README, CHANGELOG, and the licences of what is compiled in.
archive() {
  local name=slipway_${version#v}_$1_$2
  local folder=$work/$name
  echo "building slipway $version for $1/$2"
  mkdir -p "$folder"
  (
    cd "$root"
    export GOOS=$1 GOARCH=$2
    go build -buildvcs=true -ldflags "-s -w -X slipway.io/slipway/cli/version.release=$version" -o "$folder/slipway" ./cmd/slipway
    deploy/image/licences.sh "$folder/licences" ./cmd/slipway
    "$bin/cyclonedx-gomod" app -json -licenses -noserial -notimestamp -std -main cmd/slipway -output "$out/$name.cdx.json" .
  )
  ln -s slipway "$folder/kubectl-slipway"
  cp "$root/README.md" "$root/CHANGELOG.md" "$root/LICENSE" "$folder/"
  manifests "$folder/deploy"
  tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s --mtime="@$time" -C "$work" -c "$name" |
    gzip --no-name --best >"$out/$name.tar.gz"
}

# manifests FOLDER: what an administrator applies, see docs/first-canary.md.
manifests() {
  local part
  for part in crds guard rbac rollouts; do
    mkdir -p "$1/$part"
    cp "$root/deploy/$part"/*.yaml "$1/$part/"
  done
}

version=${1:-}
check
"$here/build.sh" release
time=$(git -C "$root" log -1 --format=%ct)
out=$root/dist/$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
for platform in $platforms; do archive "${platform%/*}" "${platform#*/}"; done
(cd "$out" && sha256sum ./*.tar.gz ./*.cdx.json | sed 's|\./||' >checksums.txt)
echo "dist/$version:"
cat "$out/checksums.txt"
