# shellcheck shell=bash
# How Go is called in this repository. Sourced by every script that builds or tests something.
#
# The flags are the same everywhere, so that a package which one command has compiled is taken from Go's cache by the others: -trimpath, for other clones; no
# debug information, which only a debugger reads; and the two tags with which `net` and `os/user`, and so all that imports them, are the same with C
# (temporal-dev needs it) and without. A `-tags` on a command line replaces these: give $go_tags with it.
#
# A fifth of a compiler's time goes into collecting garbage. By -toolexec the compiler, and not what is compiled, collects none until it has an eighth of the
# machine's memory.
go_tags=netgo,osusergo
compiler_memory=$(awk '/^MemTotal:/ { print int($2 / 1024 / 8) }' /proc/meminfo 2>/dev/null || echo 0)
go_flags="-trimpath -tags=$go_tags -gcflags=all=-dwarf=false '-toolexec=env GOGC=off GOMEMLIMIT=$((compiler_memory > 512 ? compiler_memory : 512))MiB'"
given=$(go env GOFLAGS 2>/dev/null || true)
case $given in
  *"$go_flags"*) ;;
  *) given="$go_flags $given" ;;
esac
export GOFLAGS=${given% } CGO_ENABLED=0
unset given compiler_memory go_flags
