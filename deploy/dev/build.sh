#!/usr/bin/env bash
# Builds what the local stack runs into .dev/bin, and only what is missing there.
#
#   deploy/dev/build.sh [stack|tools|compose|gitops|s3|helm|previous]…     (default: stack)
#
# A binary is kept as long as what it was built from stays the same. A control-plane binary on PATH that
# reports exactly the pinned version is linked instead of built.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/.dev/bin
mkdir -p "$bin"

kubernetes_version=v1.36.3
kwok_version=v0.8.0
helm_version=v4.3.1

# Fields: binary, module folder, package.
stack_binaries() {
  cat <<LIST
etcd kubernetes go.etcd.io/etcd/server/v3
kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler
kubectl kubernetes k8s.io/kubernetes/cmd/kubectl
kwok kubernetes sigs.k8s.io/kwok/cmd/kwok
kwokctl kubernetes sigs.k8s.io/kwok/cmd/kwokctl
temporal-dev temporal slipway.io/slipway/deploy/dev/temporal
LIST
}

# The small ones first: code generation needs only these.
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

# What the images of docker-compose.yml run, for its tests.
compose_binaries() {
  cat <<LIST
temporal-sql-tool ../compose/programs go.temporal.io/server/cmd/tools/sql
temporal-server ../compose/programs go.temporal.io/server/cmd/server
temporal-ui-server ../compose/programs github.com/temporalio/ui-server/v2/cmd/server
LIST
}

# What plays GitOps controllers, for the tests of what happens beside them.
gitops_binaries() {
  cat <<LIST
gitops-flux ../../test/gitops slipway.io/slipway/test/gitops/flux
gitops-argo ../../test/gitops slipway.io/slipway/test/gitops/argo
LIST
}

# Where the tests of package stores keep packages.
s3_binaries() { echo "versitygw s3 github.com/versity/versitygw/cmd/versitygw"; }

# What installs the chart, for its tests.
helm_binaries() { echo "helm helm helm.sh/helm/v4/cmd/helm"; }

# The build before this one, for the tests of two builds side by side. Whoever releases a new one names its commit here.
previous_commit=45dbea46a757726e0e7b5c8271c476bbdd211c55

build_previous() {
  local source=$root/.dev/previous
  if is_current slipway-previous "$previous_commit $go_version"; then return 0; fi
  git -C "$root" cat-file -e "$previous_commit^{commit}" 2>/dev/null ||
    { echo "the build before this one, commit $previous_commit, is not in this clone: fetch it (git fetch --unshallow)" >&2; exit 1; }
  take_lock
  echo "building slipway of commit ${previous_commit:0:12} …"
  rm -rf "$source"
  mkdir -p "$source"
  git -C "$root" archive "$previous_commit" | tar -x -C "$source"
  (cd "$source" && GOWORK=off CGO_ENABLED=0 go build -trimpath -o "$bin/.slipway-previous.partial" ./cmd/slipway)
  mv "$bin/.slipway-previous.partial" "$bin/slipway-previous"
  rm -rf "$source"
  echo "$previous_commit $go_version" >"$bin/.slipway-previous.stamp"
}

hash() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1; }

# stamp BINARY MODULE: what it is built from. Go sources count for the modules that hold code of ours.
stamp() {
  {
    cat "$here/$2/go.mod" "$here/$2/go.sum"
    find "$here/$2" -name '*.go' ! -name '*_test.go' | sort | while read -r file; do cat "$file"; done
    ldflags "$1"
    settings "$1"
    echo "$go_version"
  } | hash
}

# Whether PATH has the binary in the pinned version, elsewhere than here; prints its path.
on_path() {
  local found want
  found=$(command -v "$1") || return 1
  case $found in "$bin"/*) return 1 ;; esac
  case $1 in
    kube-*) want="Kubernetes $kubernetes_version" ;;
    kwok | kwokctl) want="version $kwok_version" ;;
    *) return 1 ;;
  esac
  "$found" --version 2>/dev/null | grep -qF "$want" && echo "$found"
}

ldflags() {
  local v=$kubernetes_version
  case $1 in
    kube*) echo "-s -w -X k8s.io/component-base/version.gitVersion=$v -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=$v" ;;
    kwok*) echo "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$kwok_version" ;;
    helm) echo "-s -w -X helm.sh/helm/v4/internal/version.version=$helm_version" ;;
    *) echo "-s -w" ;;
  esac
}

# settings BINARY: what else it is built with. The Temporal server's database is SQLite in C (temporal/sqlite) with full-text search, for lists of keywords; .ci/run
# tests it with the same.
settings() { case $1 in temporal-dev) echo "CGO_ENABLED=1 GOFLAGS=-tags=sqlite_fts5,netgo,osusergo" ;; esac; }

# Written to a temporary name first: an interrupted build leaves no half of a binary behind.
build() {
  local name=$1 module=$2 package=$3 compiler
  compiler=$(go env CC)
  if [ -n "$(settings "$name")" ] && ! command -v "${compiler%% *}" >/dev/null; then
    echo "A C compiler is missing, which $name needs (${compiler%% *}): install one, for example the Debian package gcc with libc6-dev, and run this again" >&2
    return 1
  fi
  (cd "$here/$module" && env GOWORK=off CGO_ENABLED=0 $(settings "$name") go build -trimpath -ldflags "$(ldflags "$name")" -o "$bin/.$name.partial" "$package")
  mv "$bin/.$name.partial" "$bin/$name"
}

# tell_while_running PID TEXT: a line every 30 s; fails as the process does.
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

build_list() {
  local list total n=0 name module package want found started
  list=$("$1")
  total=$(wc -l <<<"$list")
  while read -r name module package; do
    n=$((n + 1))
    want=$(stamp "$name" "$module")
    if is_current "$name" "$want"; then continue; fi
    take_lock
    if is_current "$name" "$want"; then continue; fi # another build has just done it
    if found=$(on_path "$name"); then
      echo "[$n of $((total))] $name: using $found"
      ln -sf "$found" "$bin/$name"
    else
      started=$SECONDS
      if [ -z "$hinted" ] && [ "$1" = stack_binaries ]; then
        echo "building what the local stack runs, from Go modules: about 15 minutes on 2 cores, once"
        hinted=yes
      fi
      echo "[$n of $((total))] building $name …"
      build "$name" "$module" "$package" &
      tell_while_running $! "[$n of $((total))] still building $name"
      echo "[$n of $((total))] built $name in $((SECONDS - started)) s"
    fi
    echo "$want" >"$bin/.$name.stamp"
  done <<<"$list"
}

# One build at a time in this clone. A lock whose owner is dead, or died before it wrote its pid, is taken over.
take_lock() {
  local owner tries=0
  if [ -n "$locked" ]; then return 0; fi
  until mkdir "$bin/.lock" 2>/dev/null; do
    owner=$(cat "$bin/.lock/pid" 2>/dev/null || true)
    tries=$((tries + 1))
    if [ -n "$owner" ] && kill -0 "$owner" 2>/dev/null; then
      if [ $((tries % 30)) -eq 1 ]; then echo "another build (pid $owner) is at work here; waiting for it …"; fi
    elif [ -n "$owner" ] || [ $tries -gt 3 ]; then
      rm -rf "$bin/.lock"
      continue
    fi
    sleep 2
  done
  echo $$ >"$bin/.lock/pid"
  trap 'rm -rf "$bin/.lock"' EXIT
  locked=yes
}

command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer and run this again" >&2; exit 1; }
go_version=$(cd "$here/kubernetes" && go env GOVERSION)
locked=
hinted=
for what in "${@:-stack}"; do
  case $what in
    previous) build_previous ;;
    *) build_list "${what}_binaries" ;;
  esac
done
