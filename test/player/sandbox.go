package player

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// sandbox is the environment of a container's process: its own mount and PID namespaces.
type sandbox struct {
	// root is an empty folder on which the process alone sees its file system.
	root string
	// termination is the file for the termination message.
	termination string
	mounts      []mount
	env, args   []string
	// folder is the working folder; "" means the root.
	folder      string
	user, group int64
	groups      []int64
}

// mount maps a folder or file of the machine to a path in the sandbox.
type mount struct {
	from, to string
	readOnly bool
}

// create creates the root folder and an empty file for the message that any user may write.
func (s *sandbox) create() error {
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.termination, nil, 0o600); err != nil {
		return err
	}
	return os.Chmod(s.termination, 0o666)
}

// entrypoint returns the path of a machine's program in the sandbox: its own path below /bin and /usr, else a mount in
// /usr/bin.
func (s *sandbox) entrypoint(program string) string {
	for _, system := range []string{"/bin/", "/usr/"} {
		if strings.HasPrefix(program, system) {
			return program
		}
	}
	at := filepath.Join("/usr/bin", filepath.Base(program))
	s.mounts = append(s.mounts, mount{from: program, to: at, readOnly: true})
	return at
}

// setupScript creates the root: an overlay on the machine's file system that takes all changes and disappears with the
// process, new /proc, /tmp and /dev, and the mounts in the folder .mounts. The part of the script inside the root moves
// the mounts to their places, since links resolve differently there.
const setupScript = `set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir changes work root
mount -t overlay -o "lowerdir=/,upperdir=$root/changes,workdir=$root/work" overlay root
cd root
mount -t proc proc proc
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir -m 1777 dev/shm
for device in null zero full random urandom; do : >dev/$device; mount --bind /dev/$device dev/$device; done
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mkdir .mounts
`

// script returns the shell script that sets up the sandbox and then executes the process.
func (s *sandbox) script() string {
	var out, in strings.Builder
	fmt.Fprintf(&out, "root=%s\n%s", quote(s.root), setupScript)
	in.WriteString("set -e\n")
	mounts := slices.Clone(s.mounts)
	slices.SortStableFunc(mounts, func(a, b mount) int {
		return strings.Compare(filepath.Clean(a.to), filepath.Clean(b.to))
	})
	for i, m := range mounts {
		from, at, to := quote(m.from), fmt.Sprintf(".mounts/%d", i), quote(m.to)
		fmt.Fprintf(&out, "if [ -d %s ]; then mkdir %s; else : >%s; fi\nmount --bind %s %s\n", from, at, at, from, at)
		fmt.Fprintf(&in, "if [ -d /%s ]; then mkdir -p %s; else mkdir -p %s; [ -e %s ] || : >%s; fi\n", at, to,
			quote(filepath.Dir(m.to)), to, to)
		fmt.Fprintf(&in, "mount --bind /%s %s\numount /%s\n", at, to, at)
		if m.readOnly {
			fmt.Fprintf(&in, "mount -o remount,bind,ro %s\n", to)
		}
	}
	folder := quote(filepath.Join("/", s.folder))
	fmt.Fprintf(&in, "rm -r /.mounts\nmkdir -p %s\ncd %s\nexec %s\"$@\"\n", folder, folder, s.setprivPrefix())
	fmt.Fprintf(&out, "exec chroot . /bin/sh -c %s sh \"$@\"\n", quote(in.String()))
	return out.String()
}

// setprivPrefix returns the command prefix that drops root, "" if the process runs as root.
func (s *sandbox) setprivPrefix() string {
	if s.user == 0 && s.group == 0 && len(s.groups) == 0 {
		return ""
	}
	groups := "--clear-groups"
	if len(s.groups) > 0 {
		groups = "--groups " + strings.Trim(strings.ReplaceAll(fmt.Sprint(s.groups), " ", ","), "[]")
	}
	return fmt.Sprintf("setpriv --reuid %d --regid %d %s -- ", s.user, s.group, groups)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// command returns the process, not yet started.
func (s *sandbox) command() *exec.Cmd {
	cmd := exec.Command("/bin/sh", append([]string{"-c", s.script(), "sh"}, s.args...)...)
	cmd.Env = s.env
	// The kernel kills the process when the test process dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig: syscall.SIGKILL}
	return cmd
}

// searchPath is the PATH of containers.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// checkSupport returns an error if this machine does not allow a process its own file system.
func checkSupport(folder string) error {
	s := &sandbox{root: filepath.Join(folder, "root"), termination: filepath.Join(folder, "termination"),
		env: []string{searchPath}, args: []string{"true"}}
	if err := s.create(); err != nil {
		return err
	}
	s.mounts = []mount{{from: s.termination, to: "/dev/termination-log"}}
	if out, err := s.command().CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
