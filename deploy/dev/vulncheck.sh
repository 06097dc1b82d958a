#!/usr/bin/env bash
# Looks for known vulnerabilities in the functions that slipway calls: in its own code, its modules and Go. It exits with
# 3 if it finds one. The database is https://vuln.go.dev, or the copy that GOVULNDB names (also file://FOLDER).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=deploy/dev/lib/go.sh
. "$here/lib/go.sh"
"$here/build.sh" vulncheck
cd "$root"

database=${GOVULNDB:-https://vuln.go.dev}
code=0
"$root/.dev/bin/govulncheck" -db "$database" ./cmd/... || code=$?
if [ $code -ne 0 ] && [ $code -ne 3 ]; then
  echo "vulncheck: nothing was checked. If the database $database can't be reached from here, set GOVULNDB to a copy of it" >&2
fi
exit $code
