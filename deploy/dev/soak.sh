#!/usr/bin/env bash
# Runs every soak test (TestSoak…), each as a shard of an hour at most. test.sh --soak starts the stack and calls it.
#
#   deploy/dev/test.sh --soak            run the shards that have not passed yet
#   deploy/dev/test.sh --soak PATTERN    of those, the ones whose package and test match a regular expression
#   deploy/dev/test.sh --soak --anew     forget the results, and start again with a new seed
#   deploy/dev/test.sh --soak --list     list the shards that have passed, and those that are left
#
# Results are kept in .dev/soak, with the output of every shard: after an interruption the next call continues. The seed
# of the random kills is SLIPWAY_TEST_SEED, or chosen at the start and kept. It ends with the coverage of all shards
# together, and exits with 1 unless all of them have passed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
state=$root/.dev/soak
cd "$root"
# shellcheck source=deploy/dev/lib/go.sh
. deploy/dev/lib/go.sh

case ${1:-} in
  --anew)
    rm -rf "$state"
    shift
    ;;
esac
mkdir -p "$state"
[ -f "$state/seed" ] || echo "${SLIPWAY_TEST_SEED:-$(date +%s)}" >"$state/seed"
SLIPWAY_TEST_SEED=$(cat "$state/seed")
export SLIPWAY_TEST_SOAK=1 SLIPWAY_TEST_SEED

# One line for each shard: package and test.
shards() {
  local file
  grep -rlE --include='*_test.go' '^func TestSoak' --exclude-dir=.dev . | sort | while read -r file; do
    sed -nE "s|^func (TestSoak[A-Za-z0-9_]*)\\(.*|$(dirname "$file") \\1|p" "$file"
  done
}

# The output of a shard. Its last line says `passed` if it has passed.
log_of() { echo "$state/$(tr / . <<<"${1#./}").$2.log"; }

passed() { [ -f "$1" ] && tail -n 1 "$1" | grep -q '^passed '; }

run_shard() {
  local log=$3
  go test -json -count=1 -vet=off -ldflags='-s -w' -parallel 6 -timeout 60m -run "^$2\$" "$1" </dev/null | "$root/.dev/bin/testreport" >"$log" 2>&1 || return 1
  echo "passed at $(git describe --tags --always --dirty 2>/dev/null)" >>"$log"
}

# The sums of the coverage that passed shards report.
coverage() {
  local package test log
  shards | while read -r package test; do
    log=$(log_of "$package" "$test")
    if passed "$log"; then cat "$log"; fi
  done | awk '
    $1 == "covered" { n = $2; sub(/^covered +[0-9]+ /, ""); sum[$0] += n }
    $1 == "ok" && $3 == "tests" { cases += $5 }
    END { for (what in sum) printf "soak: covered  %d %s\n", sum[what], what | "sort"; close("sort"); printf "soak: covered  %d cases\n", cases }'
}

# report [red shards…]
report() {
  local package test all=0 done=0 log
  while read -r package test; do
    all=$((all + 1))
    log=$(log_of "$package" "$test")
    if passed "$log"; then
      done=$((done + 1))
      echo "soak: $package $test $(tail -n 1 "$log"), $(grep -oE '[^ ]+$' <(tail -n 2 "$log" | head -n 1))"
    else
      echo "soak: $package $test: left"
    fi
  done < <(shards)
  coverage
  echo "soak: $done of $all shards have passed, seed $SLIPWAY_TEST_SEED"
  [ "$done" -eq "$all" ]
}

if [ "${1:-}" = --list ]; then
  report
  exit
fi
pattern=${1:-.}
trap 'echo "soak: interrupted: the next call continues with the shards that are left"; exit 130' INT TERM
red=0
while read -r package test <&3; do
  log=$(log_of "$package" "$test")
  if passed "$log" || ! grep -qE "$pattern" <<<"$package $test"; then continue; fi
  echo "soak: $package $test (seed $SLIPWAY_TEST_SEED)"
  if run_shard "$package" "$test" "$log"; then
    tail -n 2 "$log" | head -n 1
  else
    red=$((red + 1))
    cat "$log"
    echo "soak: $package $test failed; its output is in $log"
  fi
done 3< <(shards)
report || red=$((red + 1))
[ $red -eq 0 ]
