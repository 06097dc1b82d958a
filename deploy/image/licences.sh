#!/bin/sh
# Collects the licences and notices of everything that is compiled into a command: of Slipway, of each module, of code
# in a module's folders with separate licences, and of Go. MODULES-WITHOUT.txt lists modules that are published without
# a licence.
#
#   licences.sh FOLDER PACKAGE
set -eu
folder=$1 package=$2

# Copies the licence files of one folder; fails if there are none.
copy() {
  found=no
  for name in $(ls "$1" | grep -iE '^(licen[cs]e|copying|notice|patents)[^/]*$' | grep -vE '\.(go|sh)$' || true); do
    [ -f "$1/$name" ] || continue
    mkdir -p "$2"
    cp "$1/$name" "$2/$name"
    chmod 644 "$2/$name"
    found=yes
  done
  [ "$found" = yes ]
}

main=$(go list -m -f '{{.Dir}}')
copy "$main" "$folder" || { echo "there is no licence in $main" >&2; exit 1; }
copy "$(go env GOROOT)" "$folder/go" || { echo "there is no licence in Go's own folder" >&2; exit 1; }

# Each line: module, folder of the module, folder of a package of it that is compiled in.
list=$(mktemp)
trap 'rm -f "$list"' EXIT
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}} {{$.Dir}}{{end}}{{end}}' "$package" >"$list"

cut -d' ' -f1,2 "$list" | sort -u | while read -r module top; do
  copy "$top" "$folder/$module" || echo "$module" >>"$folder/MODULES-WITHOUT.txt"
done
while read -r module top directory; do
  while [ "$directory" != "$top" ]; do
    copy "$directory" "$folder/$module${directory#"$top"}" || true
    directory=${directory%/*}
  done
done <"$list"
