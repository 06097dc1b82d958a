#!/usr/bin/env bash
# Builds the programs of the local stack into .dev/bin, and only the missing ones.
#
#   deploy/dev/build.sh [stack|slipway|tools|compose|gitops|s3|newcomer|kruise|helm|release|vulncheck]…     (default: stack)
#
# A binary is kept as long as its sources don't change. If a program of the control plane already exists, in the folder
# that KUBEBUILDER_ASSETS names (as controller-runtime's envtest reads it) or on PATH, and has the minor version that is
# pinned here, it is linked instead of built.
#
# etcd is built first, because it compiles the packages that all others need. Then the stack is built in two lanes: the
# rest of the control plane in one, and in the other temporal-dev and, if requested, slipway. While one program is
# linked by one core, the other lane keeps the other core busy, and modules are downloaded in parallel.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/.dev/bin
mkdir -p "$bin"

command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer and run this again" >&2; exit 1; }
# shellcheck source=deploy/dev/lib/go.sh
. "$here/lib/go.sh"

kubernetes_version=v1.36.3
kwok_version=v0.8.0
etcd_version=3.6.8
helm_version=v4.2.4

# Fields: binary, module folder, package.
stack_binaries() {
  stack_base
  control_plane
  temporal
}

stack_base() { echo "etcd kubernetes go.etcd.io/etcd/server/v3"; }

control_plane() {
  cat <<LIST
kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler
kubectl kubernetes k8s.io/kubernetes/cmd/kubectl
kwok kubernetes sigs.k8s.io/kwok/cmd/kwok
kwokctl kubernetes sigs.k8s.io/kwok/cmd/kwokctl
LIST
}

temporal() { echo "temporal-dev temporal slipway.io/slipway/deploy/dev/temporal"; }

# The small ones first: code generation needs only them.
tools_binaries() {
  cat <<LIST
oapi-codegen tools github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
controller-gen tools sigs.k8s.io/controller-tools/cmd/controller-gen
protoc-gen-go tools google.golang.org/protobuf/cmd/protoc-gen-go
protoc-gen-go-grpc tools google.golang.org/grpc/cmd/protoc-gen-go-grpc
protogen tools slipway.io/slipway/deploy/dev/tools/protogen
workflowcheck tools go.temporal.io/sdk/contrib/tools/workflowcheck
golangci-lint lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
LIST
}

# The programs in the images of docker-compose.yml, for its tests.
compose_binaries() {
  cat <<LIST
temporal-sql-tool ../compose/programs go.temporal.io/server/cmd/tools/sql
temporal-server ../compose/programs go.temporal.io/server/cmd/server
temporal-ui-server ../compose/programs github.com/temporalio/ui-server/v2/cmd/server
LIST
}

# The programs that play GitOps controllers, for the tests with them.
gitops_binaries() {
  cat <<LIST
gitops-flux ../../test/gitops slipway.io/slipway/test/gitops/flux
gitops-argo ../../test/gitops slipway.io/slipway/test/gitops/argo
LIST
}

# The S3 server for the tests of package stores.
s3_binaries() { echo "versitygw s3 github.com/versity/versitygw/cmd/versitygw"; }

# Temporal's own command line and development server, as newcomers have it.
newcomer_binaries() { echo "temporal newcomer github.com/temporalio/cli/cmd/temporal"; }

# OpenKruise's own manager, for the tests of its kinds.
kruise_binaries() { echo "kruise-manager kruise github.com/openkruise/kruise"; }

# What makes the SBOM of a release.
release_binaries() { echo "cyclonedx-gomod release github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod"; }

vulncheck_binaries() { echo "govulncheck release golang.org/x/vuln/cmd/govulncheck"; }

# Helm, which installs the chart in its tests.
helm_binaries() { echo "helm helm helm.sh/helm/v4/cmd/helm"; }

hash() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1; }

# stamp BINARY MODULE: a digest of its sources. Go sources count for the modules that contain our own code.
stamp() {
  {
    cat "$here/$2/go.mod" "$here/$2/go.sum"
    find "$here/$2" -name '*.go' ! -name '*_test.go' | sort | while read -r file; do cat "$file"; done
    ldflags "$1"
    echo "$go_version"
  } | hash
}

# already_there BINARY: prints the path of a binary in the folder of KUBEBUILDER_ASSETS or on PATH that has the pinned
# minor version.
already_there() {
  local found want
  case $1 in
    etcd) want="etcd Version: $etcd_version" ;;
    kubectl) want="Client Version: $kubernetes_version" ;;
    kube-*) want="Kubernetes $kubernetes_version" ;;
    kwok | kwokctl) want="version $kwok_version" ;;
    *) return 1 ;;
  esac
  for found in "${KUBEBUILDER_ASSETS:+$KUBEBUILDER_ASSETS/$1}" $(type -ap "$1"); do
    case $found in "$bin"/* | "") continue ;; esac
    if [ -x "$found" ] && version_of "$1" "$found" | grep -qF "${want%.*}."; then
      echo "$found"
      return 0
    fi
  done
  return 1
}

version_of() { if [ "$1" = kubectl ]; then "$2" version --client 2>/dev/null; else "$2" --version 2>/dev/null; fi; }

ldflags() {
  local v=$kubernetes_version
  case $1 in
    kube*) echo "-s -w -X k8s.io/component-base/version.gitVersion=$v -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=$v" ;;
    kwok*) echo "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$kwok_version" ;;
    helm) echo "-s -w -X helm.sh/helm/v4/internal/version.version=$helm_version" ;;
    *) echo "-s -w" ;;
  esac
}

# Written to a temporary name first, so that an interrupted build leaves no partial binary behind.
build() {
  local name=$1 module=$2 package=$3 with=CGO_ENABLED=0 tags=$go_tags
  if needs_c "$name"; then with=CGO_ENABLED=1 tags=$go_tags,sqlite_fts5; fi
  (cd "$here/$module" && env GOWORK=off "$with" go build -tags "$tags" -ldflags "$(ldflags "$name")" -o "$bin/.$name.partial" "$package") &&
    mv "$bin/.$name.partial" "$bin/$name"
}

# The Temporal server's database is SQLite in C (temporal/sqlite), with full-text search for lists of keywords; .ci/run tests it with the same tags.
needs_c() { [ "$1" = temporal-dev ]; }

check_c_compiler() {
  local compiler
  compiler=$(go env CC)
  if command -v "${compiler%% *}" >/dev/null; then return 0; fi
  echo "A C compiler is missing, which $1 needs (${compiler%% *}): install one, for example the Debian package gcc with libc6-dev, and run this again" >&2
  return 1
}

# tell_while_running PID TEXT: prints a line every 30 s; fails if the process fails.
tell_while_running() {
  local seconds=0
  while kill -0 "$1" 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    if [ $((seconds % 30)) -eq 0 ]; then echo "$2 ($seconds s)"; fi
  done
  wait "$1"
}

is_current() { [ -x "$bin/$1" ] && [ "$(cat "$bin/.$1.stamp" 2>/dev/null)" = "$2" ]; }

# build_lists LIST…: builds their missing programs, one after the other.
build_lists() {
  local list
  mark_missing "$@" || return 0
  for list; do build_marked "$list"; done
}

# mark_missing LIST…: creates a file in $left for each program of the lists that must be built; fails if there is none.
mark_missing() {
  find_missing "$@"
  [ "$(count_left)" -gt 0 ] || return 1
  if [ -n "$locked" ]; then return 0; fi
  take_lock
  rm -f "$left"/*
  find_missing "$@" # another build may just have built them
  [ "$(count_left)" -gt 0 ]
}

find_missing() {
  local list name module package
  for list; do
    while read -r name module package; do
      if take_what_is_there "$name" || is_current "$name" "$(stamp "$name" "$module")"; then continue; fi
      if needs_c "$name"; then check_c_compiler "$name" || exit 1; fi
      echo "$module $package" >"$left/$name"
    done < <("$list")
  done
}

# take_what_is_there BINARY: links an existing program, unless it is built here. A link is checked each time: its target
# may have another version by now.
take_what_is_there() {
  local found
  if [ -x "$bin/$1" ] && [ ! -L "$bin/$1" ]; then return 1; fi
  if found=$(already_there "$1"); then
    if [ "$(readlink "$bin/$1")" = "$found" ]; then return 0; fi
    ln -sf "$found" "$bin/$1"
    echo "using $found"
    return 0
  fi
  rm -f "$bin/$1"
  return 1
}

count_left() { find "$left" -type f | wc -l; }

# build_marked LIST: builds its marked programs.
build_marked() {
  local name module package started
  while read -r name module package; do
    if [ ! -e "$left/$name" ]; then continue; fi
    started=$SECONDS
    echo "building $name …"
    build "$name" "$module" "$package" &
    tell_while_running $! "still building $name" || return 1
    rm "$left/$name"
    echo "built $name in $((SECONDS - started)) s; $(count_left) left to build"
    stamp "$name" "$module" >"$bin/.$name.stamp"
  done < <("$1")
}

# build_stack [slipway]: builds in two lanes, see above.
build_stack() {
  local lanes=() lane code=0
  if ! mark_missing stack_binaries; then
    "build_${1:-nothing}"
    return
  fi
  echo "building the programs of the local stack from Go modules: $(count_left) of $(stack_binaries | wc -l). All of them take 8 to 15 minutes on 2 cores, once"
  download "$@" &
  build_marked stack_base
  build_marked control_plane &
  lanes+=($!)
  { build_marked temporal && "build_${1:-nothing}"; } &
  lanes+=($!)
  for lane in "${lanes[@]}"; do wait "$lane" || code=1; done
  return $code
}

build_nothing() { :; }

# download [slipway]: downloads the modules of later builds while the first program is compiled. An error here occurs
# again in the build, which reports it.
download() {
  local file module package
  for file in "$left"/*; do
    if read -r module package <"$file"; then (cd "$here/$module" && GOWORK=off go list -deps "$package" >/dev/null) || true; fi
  done 2>/dev/null
  if [ -n "${1:-}" ]; then (cd "$root" && go list -deps ./cmd/slipway >/dev/null 2>&1) || true; fi
}

# build_slipway: always builds; Go's cache makes it fast if nothing has changed.
build_slipway() {
  local release
  release=$(git -C "$root" describe --tags --always --dirty 2>/dev/null || true)
  (cd "$root" && go build -ldflags "-X slipway.io/slipway/cli/version.release=$release" -o "$bin/slipway" ./cmd/slipway)
  ln -sf slipway "$bin/kubectl-slipway"
}

# One build at a time in this clone. A lock whose owner is dead, or died before it wrote its pid, is taken over.
take_lock() {
  local owner tries=0
  if [ -n "$locked" ]; then return 0; fi
  until mkdir "$bin/.lock" 2>/dev/null; do
    owner=$(cat "$bin/.lock/pid" 2>/dev/null || true)
    tries=$((tries + 1))
    if [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null; then
      if [ $((tries % 30)) -eq 1 ]; then echo "another build (pid $owner) is running in this clone; waiting for it …"; fi
    elif [ -n "$owner" ] || [ $tries -gt 3 ]; then
      rm -rf "$bin/.lock"
      continue
    fi
    sleep 2
  done
  echo $$ >"$bin/.lock/pid"
  locked=yes
}

go_version=$(cd "$here/kubernetes" && go env GOVERSION)
locked=
left=$(mktemp -d)
trap 'rm -rf "$left"; if [ -n "$locked" ]; then rm -rf "$bin/.lock"; fi' EXIT
if [ $# -eq 0 ]; then set -- stack; fi
while [ $# -gt 0 ]; do
  case $1 in
    slipway) build_slipway ;;
    stack)
      if [ "${2:-}" = slipway ]; then
        build_stack slipway
        shift
      else
        build_stack
      fi
      ;;
    *) build_lists "${1}_binaries" ;;
  esac
  shift
done
