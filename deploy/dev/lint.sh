#!/usr/bin/env bash
# Everything that can be said about the code without running it: format, vet, linters with the import arrows (.golangci.yml),
# determinism of the workflows, and the alert rules with their unit tests.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$root/.dev/bin
# shellcheck source=deploy/dev/lib/go.sh
. "$here/lib/go.sh"
"$here/build.sh" tools
cd "$root"

check_format() {
  local files
  files=$(git ls-files -co --exclude-standard -- '*.go' | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done | xargs gofmt -l)
  if [ -n "$files" ]; then
    echo "lint: not formatted (run gofmt -w on them):" >&2
    echo "$files" >&2
    exit 1
  fi
}

check_monitoring() {
  if ! command -v promtool >/dev/null; then
    echo "lint: promtool is missing, so the alert rules were not checked: run 'sudo deploy/dev/install-debian.sh' (Debian's package prometheus)" >&2
    [ -z "${CI:-}" ] || exit 1
    return 0
  fi
  promtool check rules --lint-fatal deploy/monitoring/rules.yaml
  # The token file that the example names exists where it is used.
  promtool check config --syntax-only deploy/monitoring/scrape.yaml
  promtool test rules deploy/monitoring/rules.test.yaml
}

echo "lint: gofmt"
check_format
echo "lint: go vet, also with the failpoints"
go vet ./...
go vet -tags "failpoints,$go_tags" ./...
echo "lint: golangci-lint"
"$bin/golangci-lint" run ./...
echo "lint: workflowcheck"
"$bin/workflowcheck" -config "$here/workflowcheck.yaml" ./workflows/...
echo "lint: promtool"
check_monitoring
