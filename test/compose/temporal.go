package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// Temporal is the Temporal server of the compose file, on PostgreSQL, for tests of engines. Workloads run on the shared
// stack.
type Temporal struct {
	harness.Stack
	t *testing.T
	r *localStack
}

// StartTemporal starts a server that ends with the test.
func StartTemporal(t *testing.T) *Temporal { return startTemporal(t, "") }

// StartTemporalOnSmallDisk is StartTemporal with a database on a disk of this size, in MiB.
func StartTemporalOnSmallDisk(t *testing.T, size int) *Temporal {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small disk needs root: run the tests as root")
	}
	folder, err := os.MkdirTemp("", "slipway-disk-")
	require.NoError(t, err)
	require.NoError(t, syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm", size)))
	t.Cleanup(func() {
		_ = syscall.Unmount(folder, syscall.MNT_DETACH)
		_ = os.Remove(folder)
	})
	return startTemporal(t, folder)
}

// startTemporal starts a server with its database in this folder; "" means a new one.
func startTemporal(t *testing.T, folder string) *Temporal {
	t.Helper()
	x := &Temporal{Stack: harness.SharedStack(t), t: t}
	x.r = &localStack{project: load(t, example(t), composeFile), folder: folder,
		containers: map[string]*container{}, processes: map[string]*harness.Process{}, ports: map[string]string{}}
	x.r.buildTemporal(t, programs.Folder(t, "compose"))
	for _, name := range startOrder(t, x.r.project) {
		if x.isTemporalService(name) {
			x.r.start(t, name)
			if !isJob(x.r.project, name) {
				x.r.waitHealthy(t, name)
			}
		}
	}
	x.TemporalAddress, x.TemporalUI, x.KeepsBuilds = "127.0.0.1:"+x.r.port(t, "temporal:7233"), "http://127.0.0.1:1",
		true
	return x
}

func (x *Temporal) isTemporalService(service string) bool {
	return service == "postgresql" || service == "temporal" || service == "temporal-schema" ||
		service == "temporal-namespace"
}

// StopDatabase stops PostgreSQL immediately, like a crash.
func (x *Temporal) StopDatabase() { x.r.database.stop() }

// StartDatabase starts PostgreSQL with its data, unless it runs.
func (x *Temporal) StartDatabase() {
	x.t.Helper()
	if !x.r.database.isReady(x.t, x.r.project.Services["postgresql"].HealthCheck.Test[1:]) {
		x.r.database.stop()
		x.r.database.start(x.t)
	}
	x.r.waitHealthy(x.t, "postgresql")
}

// KillServer kills the Temporal server, like a crash.
func (x *Temporal) KillServer() { x.r.processes["temporal"].Kill() }

// StartServer starts the Temporal server again, as Docker does by the compose file.
func (x *Temporal) StartServer() {
	x.t.Helper()
	x.r.start(x.t, "temporal")
	x.r.waitHealthy(x.t, "temporal")
}

// databases are the databases of Temporal.
var databases = []string{"temporal", "temporal_visibility"}

// Dump writes both databases to files in a folder, with the commands of docs/operations.md.
func (x *Temporal) Dump(folder string) {
	x.t.Helper()
	for _, name := range databases {
		x.client("pg_dump", "--format=custom", "--file="+filepath.Join(folder, name), name)
	}
}

// Restore restores both databases from a dump. The Temporal server must not run meanwhile.
func (x *Temporal) Restore(folder string) {
	x.t.Helper()
	for _, name := range databases {
		x.client("pg_restore", "--clean", "--if-exists", "--dbname="+name, filepath.Join(folder, name))
	}
}

func (x *Temporal) client(program string, args ...string) {
	x.t.Helper()
	d := x.r.database
	command := exec.Command(filepath.Join(d.bin, program),
		append([]string{"--host=" + d.host, "--port=" + d.port, "--username=" + d.user}, args...)...)
	command.Env = append(os.Environ(), "PGPASSWORD="+d.password)
	out, err := command.CombinedOutput()
	require.NoError(x.t, err, "%s: %s", program, out)
}

// FillDisk fills the database's disk and returns a function that frees the space.
func (x *Temporal) FillDisk() (free func()) {
	x.t.Helper()
	name := filepath.Join(x.r.database.folder, "filled")
	file, err := os.Create(name)
	require.NoError(x.t, err)
	defer file.Close()
	chunk := make([]byte, 1<<16)
	for err == nil {
		_, err = file.Write(chunk)
	}
	require.ErrorIs(x.t, err, syscall.ENOSPC)
	return func() { require.NoError(x.t, os.Remove(name)) }
}
