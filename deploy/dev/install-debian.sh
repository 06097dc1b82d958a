#!/usr/bin/env bash
# Installs the Debian packages that some tests need, if they are missing: chromium (a browser that drives the Web UI),
# postgresql (the schema of the compose file's Temporal), prometheus (promtool and a server, to test the alert rules),
# and common archive programs. Needs root only if something is missing.
set -euo pipefail

missing=()
if ! command -v chromium >/dev/null; then missing+=(chromium); fi
if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && ! command -v initdb >/dev/null; then missing+=(postgresql); fi
if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then missing+=(prometheus); fi
for program in bsdtar:libarchive-tools 7z:p7zip-full zip:zip zstd:zstd; do
  if ! command -v "${program%%:*}" >/dev/null; then missing+=("${program#*:}"); fi
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

command -v apt-get >/dev/null || { echo "install-debian: ${missing[*]} missing, and this system has no apt-get: install them by hand" >&2; exit 1; }
if [ "$(id -u)" -ne 0 ]; then
  echo "install-debian: ${missing[*]} missing: run 'sudo $0' once" >&2
  exit 1
fi
# The tests run servers of their own, so packages must not start any, now or at the next boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
fi
unit=/etc/systemd/system/prometheus.service
if [[ " ${missing[*]} " == *" prometheus "* ]] && [ ! -e $unit ]; then
  echo "install-debian: prometheus.service is masked ('systemctl unmask prometheus' undoes it)"
  mkdir -p "${unit%/*}"
  ln -sf /dev/null $unit
fi
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
fi
echo "install-debian: installing ${missing[*]} …"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
