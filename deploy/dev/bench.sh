#!/usr/bin/env bash
# Measures what releases cost, in parts of an hour at most. test.sh --bench starts the stack and calls it.
#
#   deploy/dev/test.sh --bench            all parts except the big cluster, one after the other
#   deploy/dev/test.sh --bench PART…      only the named parts
#
# Each part prints its figures as it measures them, and at its end the medians of repeated measurements;
# docs/performance.md explains them.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# shellcheck source=deploy/dev/lib/go.sh
. deploy/dev/lib/go.sh

# One line for each part: its name, the number of measurements, and the tests.
parts() {
  cat <<LIST
few 3 ^Test(Long(RolloutsAtOnce|ServingsAtOnce)|Soak(FewCanariesByIngress|FewKubectlAtOnce|TwentyRolloutsAtOnce|TwoHundredServices))$
rollouts 3 ^TestSoakRollouts(AtOnce|WithPauses|AmongIdleDeployments)$
floor 3 ^TestSoak((Twenty)?RolloutsFloor|PausesFloor|ServingsFloor)$
thousand 1 ^TestSoakThousandRolloutsAtOnce$
canaries 3 ^TestSoak(CanariesByIngress|KubectlAtOnce)$
servings 3 ^TestSoak(ServingsAtOnce|PackagesAmongServices)$
views 1 ^TestSoak(Reads|RolloutsWaiting|WaitingFloor)$
waiting 1 ^TestSoakFiveThousandRolloutsWaiting$
big 1 ^TestSoakBigCluster$
LIST
}

run_part() {
  local name=$1 times=$2 tests=$3
  echo "bench: $name"
  go test -count="$times" -vet=off -timeout 60m -v -run "$tests" ./test/bench
}

if [ $# -eq 0 ]; then
  mapfile -t asked < <(parts | awk '$1 != "big" { print $1 }')
  set -- "${asked[@]}"
fi
for part in "$@"; do
  parts | grep -q "^$part " || { echo "bench: unknown part $part; the parts are $(parts | awk '{ print $1 }' | paste -sd ' ')" >&2; exit 2; }
done
code=0
for part in "$@"; do
  read -r name times tests < <(parts | grep "^$part ")
  run_part "$name" "$times" "$tests" || code=1
done
exit $code
