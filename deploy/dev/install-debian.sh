#!/usr/bin/env bash
# Installs the Debian packages that some tests need, if they are missing: chromium (a browser that drives the Web UI),
# postgresql (the schema of the compose file's Temporal), and the programs with which people make archives. Needs root only if
# something is missing.
set -euo pipefail

missing=()
if ! command -v chromium >/dev/null; then missing+=(chromium); fi
if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && ! command -v initdb >/dev/null; then missing+=(postgresql); fi
for program in bsdtar:libarchive-tools 7z:p7zip-full zip:zip zstd:zstd; do
  if ! command -v "${program%%:*}" >/dev/null; then missing+=("${program#*:}"); fi
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

command -v apt-get >/dev/null || { echo "install-debian: ${missing[*]} missing, and this is no Debian: install them by hand" >&2; exit 1; }
if [ "$(id -u)" -ne 0 ]; then
  echo "install-debian: ${missing[*]} missing: run 'sudo $0' once" >&2
  exit 1
fi
# The tests make a PostgreSQL of their own; no server is to be started by the package.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
fi
echo "install-debian: installing ${missing[*]} …"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
