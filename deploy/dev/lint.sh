#!/usr/bin/env bash
# Static checks: format, vet, linters with the import rules (.golangci.yml), determinism of the workflows, and the alert
# rules with their unit tests.
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

# check_versions FILE…: a module that several of them need must have one version in all, so that its packages are
# compiled once, see lib/go.sh.
check_versions() {
  awk '
    FNR == 1 || $1 == ")" { block = "" }
    { kind = block }
    $1 == "require" || $1 == "replace" { if ($2 == "(") { block = $1; next } kind = $1; $1 = ""; $0 = $0 }
    kind == "require" { version[FILENAME, $1] = $2 }
    kind == "replace" && $2 == "=>" { if (NF == 4) version[FILENAME, $1] = $4; else delete version[FILENAME, $1] }
    END {
      for (i = 1; i < ARGC; i++) for (key in version) {
        split(key, part, SUBSEP)
        if (part[1] != ARGV[i]) continue
        if (!(part[2] in file)) { file[part[2]] = ARGV[i]; continue }
        other = version[file[part[2]], part[2]]
        if (version[key] != other) { print "lint: " part[2] " is " version[key] " in " ARGV[i] " and " other " in " file[part[2]] ": take the newer one in both"; wrong = 1 }
      }
      exit wrong
    }' "$@" >&2
}

check_monitoring() {
  if ! command -v promtool >/dev/null; then
    echo "lint: promtool is missing, so the alert rules were not checked: run 'sudo deploy/dev/install-debian.sh' (Debian's package prometheus)" >&2
    [ -z "${CI:-}" ] || exit 1
    return 0
  fi
  promtool check rules --lint-fatal deploy/monitoring/rules.yaml
  # Syntax only, because the token file that the example names doesn't exist here.
  promtool check config --syntax-only deploy/monitoring/scrape.yaml
  promtool test rules deploy/monitoring/rules.test.yaml
}

echo "lint: gofmt"
check_format
echo "lint: versions of modules"
check_versions go.mod deploy/dev/kubernetes/go.mod deploy/dev/temporal/go.mod deploy/compose/programs/go.mod
check_versions go.mod deploy/dev/helm/go.mod
check_versions go.mod test/gitops/go.mod
echo "lint: sums of the modules of make release"
(cd deploy/dev/release && go list -deps tool >/dev/null)
echo "lint: go vet, also with the failpoints"
go vet ./...
go vet -tags "failpoints,$go_tags" ./...
echo "lint: golangci-lint"
"$bin/golangci-lint" run ./...
echo "lint: workflowcheck"
"$bin/workflowcheck" -config "$here/workflowcheck.yaml" ./workflows/...
echo "lint: promtool"
check_monitoring
