#!/usr/bin/env bash
# Runs Slipway's tests against the local stack, which it starts if necessary.
#
#   deploy/dev/test.sh [go test arguments…]       the tests that a change most likely breaks (default: ./...)
#   deploy/dev/test.sh --race [arguments…]        the tests that need no stack, under the race detector (default: ./...)
#   deploy/dev/test.sh --long                     the remaining guarantees: the tests named TestLong…, which the first leaves out
#   deploy/dev/test.sh --soak [arguments…]        every kill, combination and size, in shards: see soak.sh
#   deploy/dev/test.sh --bench [parts…]           the measurements of test/bench, which print their figures: see bench.sh
#   deploy/dev/test.sh --print-env                the tests' environment, for `eval "$(…)"` and a `go test` by hand
#
# A test that needs the stack reads these:
#
#   SLIPWAY_TEST_STACK             1: the stack is up. Without it, as with --race, tests that need it are skipped
#   SLIPWAY_TEST_LONG              1 with --long: the tests that are named TestLong…
#   SLIPWAY_TEST_SOAK              1 with --soak: the tests that are named TestSoak…
#   SLIPWAY_TEST_SEED              the seed of random kills; default: the clock
#   SLIPWAY_TEST_PARALLEL          how many tests of a package run side by side (default 6, long 5)
#   SLIPWAY_TEST_KUBECONFIG        kubeconfig of the local cluster, as its administrator
#   SLIPWAY_TEST_TEMPORAL_ADDRESS  host:port
#   SLIPWAY_TEST_TEMPORAL_UI       URL of Temporal's Web UI itself, which the tests' engines publish
#   SLIPWAY_TEST_BIN               folder with slipway, slipway-failpoints (built with -tags failpoints), with --long slipway-race (with -race too), and the stack's binaries
#   SLIPWAY_TEST_ROOT              this clone
#
# With CI set in the environment a skipped test is a failure, except if its name and its reason assign it to a longer
# run.
#
# Up to three tests that failed in the full run are run again, one at a time, three times each, and reported as RED ONCE
# if they pass every time: two cores that also run a control plane, its nodes and a Temporal server can be late for
# anything. Of a test with cases, only the failed ones are run again. A test that is RED ONCE is a defect nevertheless,
# of the test or of the product.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/.dev/bin
# shellcheck source=deploy/dev/lib/go.sh
. "$here/lib/go.sh"

stack_value() { sed -n "s/^$1=//p" "$root/.dev/env"; }

set_environment() {
  [ -f "$root/.dev/env" ] || { echo "test: the stack was never started: run 'make up'" >&2; exit 1; }
  export SLIPWAY_TEST_STACK=1
  SLIPWAY_TEST_KUBECONFIG=$(stack_value SLIPWAY_DEV_KUBECONFIG)
  SLIPWAY_TEST_TEMPORAL_ADDRESS=$(stack_value SLIPWAY_DEV_TEMPORAL_ADDRESS)
  SLIPWAY_TEST_TEMPORAL_UI=$(stack_value SLIPWAY_DEV_TEMPORAL_UI_UPSTREAM)
  export SLIPWAY_TEST_KUBECONFIG SLIPWAY_TEST_TEMPORAL_ADDRESS SLIPWAY_TEST_TEMPORAL_UI
  export SLIPWAY_TEST_BIN=$bin SLIPWAY_TEST_ROOT=$root
  # A stack that a test starts for itself chooses its own ports.
  local name
  for name in $(compgen -e SLIPWAY_DEV_ || true); do unset "$name"; done
}

build_slipway() {
  echo "test: building slipway and slipway-failpoints …"
  go build -o "$bin/slipway" ./cmd/slipway
  go build -tags "failpoints,$go_tags" -o "$bin/slipway-failpoints" ./cmd/slipway
  go build -o "$bin/testreport" ./test/report
}

cd "$root"
long=
soak=
bench=
timeout=25m
parallel=${SLIPWAY_TEST_PARALLEL:-6}
packages=2 # at a time
case ${1:-} in
  --print-env)
    set_environment
    for name in $(compgen -e SLIPWAY_TEST_); do printf 'export %s=%q\n' "$name" "${!name}"; done
    exit 0
    ;;
  --race)
    shift
    mkdir -p "$bin"
    go build -o "$bin/testreport" ./test/report
    [ $# -gt 0 ] || set -- ./...
    unset SLIPWAY_TEST_STACK
    export SLIPWAY_TEST_ROOT=$root
    CGO_ENABLED=1 go test -json -race -count="${SLIPWAY_TEST_COUNT:-1}" -vet=off -ldflags='-s -w' -timeout "$timeout" "$@" | "$bin/testreport"
    exit
    ;;
  --long)
    long=yes
    timeout=40m
    shift
    ;;
  --soak)
    soak=yes
    shift
    ;;
  --bench)
    long=yes
    soak=yes
    bench=yes
    shift
    ;;
esac

# The engine that `make demo` leaves running would reconcile objects without an engine, which tests create for their own
# engines.
stop_demo() {
  local pid=$root/.dev/run/slipway.pid
  if [ -f "$pid" ] && "$here/stack.sh" stop slipway; then
    echo "test: the engine of make demo was stopped: 'make demo' starts it again"
  fi
}

stop_demo
"$here/stack.sh" up
build_slipway
set_environment
unset SLIPWAY_TEST_LONG SLIPWAY_TEST_SOAK
if [ -n "$long" ]; then export SLIPWAY_TEST_LONG=1; fi
if [ -n "$soak" ]; then export SLIPWAY_TEST_SOAK=1; fi
# A full run builds further programs before the tests, so that the time of a test doesn't include it. A single test
# builds what it needs (test/programs).
build_programs() {
  if [ -n "$long" ] && [ -z "$bench" ]; then
    echo "test: building slipway-race …"
    CGO_ENABLED=1 go build -race -tags "failpoints,$go_tags" -o "$bin/slipway-race" ./cmd/slipway
  fi
  if [ $# -gt 0 ] || [ -n "$bench" ]; then return 0; fi
  "$here/build.sh" s3 helm
  if [ -n "$long$soak" ]; then "$here/build.sh" gitops compose newcomer kruise; fi
}
build_programs "$@"
if [ -n "$bench" ]; then exec "$here/bench.sh" "$@"; fi
if [ -n "$soak" ]; then exec "$here/soak.sh" "$@"; fi

red=$(mktemp) beside=$(mktemp)
trap 'rm -f "$red" "$beside"' EXIT
# Most tests wait for the cluster most of the time, so more tests run in parallel than there are cores. Without debug
# information, which no test reads, a test binary is linked in half the time; `make lint` runs vet.
run() { go test -json -count=1 -vet=off -ldflags='-s -w' -p "$packages" -parallel "$parallel" -timeout "$timeout" "$@"; }

# The tests that are killed at failpoints without an engine: they must be built with the tag failpoints themselves.
run_killed() {
  local files tests
  mapfile -t files < <(grep -rlE --include='*_test.go' --exclude-dir=.dev '^//go:build failpoints' .)
  tests=$(sed -nE 's/^func (Test[A-Za-z0-9]*)\(.*/\1/p' "${files[@]}" | paste -sd '|')
  mapfile -t files < <(dirname "${files[@]}" | sort -u)
  run -tags "failpoints,$go_tags" -run "^($tests)\$" "${files[@]}"
}

# run_all: the slowest packages start first. The long run has two lanes: test/e2e, whose tests start control planes of
# their own, kill processes at random and fill the cluster with hundreds of pods, and beside it the other packages, one
# at a time, most of which wait for something. Their lines are printed at the end. The measurements of test/bench come
# last, with nothing beside them.
run_all() {
  local code=0 second_lane others
  if [ -z "$long" ]; then
    run ./test/e2e ./activities/workload ./... || code=1
    run_killed || code=1
    return $code
  fi
  packages=1 parallel=${SLIPWAY_TEST_PARALLEL:-5}
  mapfile -t others < <(grep -rlE --include='*_test.go' --exclude-dir=.dev '^func TestLong' . | xargs -n 1 dirname | sort -u | grep -vE '/test/(bench|e2e)$')
  run -run '^TestLong' "${others[@]}" >"$beside" &
  second_lane=$!
  run -run '^TestLong' ./test/e2e || code=1
  wait "$second_lane" || code=1
  cat "$beside"
  parallel=1
  run -run '^TestLong' ./test/bench || code=1
  return $code
}

# run_asked [go test arguments…]
run_asked() { if [ $# -eq 0 ]; then run_all; else run "$@"; fi; }

if run_asked "$@" | "$bin/testreport" -again "$red"; then exit 0; fi
[ -s "$red" ] || exit 1
while read -r package pattern; do
  echo "test: $package $pattern failed in the full run: running it three times more, alone"
  for _ in 1 2 3; do # each in a process of its own: state that a test leaves in a shared engine ends with the process
    go test -json -tags "failpoints,$go_tags" -count=1 -vet=off -ldflags='-s -w' -parallel 1 -timeout "$timeout" -run "$pattern" "$package" </dev/null | "$bin/testreport" || exit 1
  done
done <"$red"
sed 's/^/RED ONCE  /' "$red"
