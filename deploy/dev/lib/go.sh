# shellcheck shell=bash
# The Go flags of this repository. Sourced by every script that builds or tests something.
#
# The flags are the same everywhere, so that all commands share packages in Go's cache: -trimpath, for other clones; no
# debug information, which only a debugger reads; and the two tags that make `net` and `os/user`, and so all packages
# that import them, equal with C (which temporal-dev needs) and without. A `-tags` on a command line replaces these:
# include $go_tags in it.
#
# A compiler spends a fifth of its time on garbage collection. With -toolexec the compiler itself, not the compiled
# program, collects no garbage until it uses an eighth of the machine's memory.
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
