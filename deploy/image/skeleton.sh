#!/bin/sh
# Creates the files that a static binary expects: certificates, a named user, and a folder for temporary files.
#
#   skeleton.sh ROOT CERTIFICATES
set -eu
root=$1 certificates=$2

mkdir -p "$root/etc/ssl/certs" "$root/tmp"
chmod 1777 "$root/tmp"
cp "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
echo 'slipway:x:65532:65532:Slipway:/tmp:/sbin/nologin' >"$root/etc/passwd"
echo 'slipway:x:65532:' >"$root/etc/group"
