package compose

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// postgres is the PostgreSQL server of one test, with its own data and port. It requires a password.
type postgres struct {
	host, port, user, passwordFile string
	bin                            string
	password                       string
	folder                         string
	credential                     *syscall.Credential
	server                         *exec.Cmd
	// flags are additional flags of the server.
	flags []string
}

// startPostgres runs a server until the test ends. Its superuser and password are those that the image derives from the
// same environment.
func startPostgres(t *testing.T, name, password string) *postgres {
	t.Helper()
	// Not t.TempDir(): PostgreSQL refuses to run as root, and its user must have access to the folder.
	folder, err := os.MkdirTemp("", "slipway-postgres-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return startPostgresIn(t, folder, name, password)
}

// startPostgresIn is startPostgres with its data in this folder.
func startPostgresIn(t *testing.T, folder, name, password string) *postgres {
	t.Helper()
	p := &postgres{host: "127.0.0.1", port: harness.FreePort(t), user: name, password: password,
		bin: postgresBinaries(t), folder: folder,
		passwordFile: filepath.Join(folder, "password"), credential: ordinaryUser(t, folder)}
	require.NoError(t, os.WriteFile(p.passwordFile, []byte(password+"\n"), 0o444))
	initdb := exec.Command(filepath.Join(p.bin, "initdb"), "--pgdata", p.data(), "--username", name, "--pwfile",
		p.passwordFile,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = folder, &syscall.SysProcAttr{Credential: p.credential}
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "initdb: %s", out)
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			text, _ := os.ReadFile(p.log())
			t.Logf("PostgreSQL's log:\n%s", text)
		}
	})
	p.start(t)
	return p
}

func (p *postgres) data() string { return filepath.Join(p.folder, "data") }

func (p *postgres) log() string { return filepath.Join(p.folder, "log") }

// start starts the server with its data.
func (p *postgres) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	flags := append([]string{"-D", p.data(), "-p", p.port, "-c", "listen_addresses=" + p.host, "-c",
		"unix_socket_directories=" + p.folder, "-c", "fsync=off"}, p.flags...)
	p.server = exec.Command(filepath.Join(p.bin, "postgres"), flags...)
	p.server.Dir, p.server.Stdout, p.server.Stderr = p.folder, log, log
	p.server.SysProcAttr = &syscall.SysProcAttr{Credential: p.credential, Pdeathsig: syscall.SIGQUIT}
	require.NoError(t, p.server.Start())
}

// stop ends the server; it may be called twice. It is an immediate shutdown, which does not wait for open connections.
func (p *postgres) stop() {
	if p.server == nil {
		return
	}
	_ = p.server.Process.Signal(syscall.SIGQUIT)
	_ = p.server.Wait()
	p.server = nil
}

// postgresBinaries returns the folder of PostgreSQL's programs: SLIPWAY_TEST_POSTGRES_BIN, or that of Debian's newest
// version.
func postgresBinaries(t *testing.T) string {
	t.Helper()
	if folder := os.Getenv("SLIPWAY_TEST_POSTGRES_BIN"); folder != "" {
		return folder
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	require.NoError(t, err)
	if len(found) > 0 {
		version := func(file string) int {
			n, _ := strconv.Atoi(strings.Split(file, "/")[4])
			return n
		}
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }))
	}
	if file, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(file)
	}
	t.Skip("needs PostgreSQL: install Debian's package postgresql, or set SLIPWAY_TEST_POSTGRES_BIN to the folder of " +
		"initdb and postgres")
	return ""
}

// ordinaryUser gives the folder to a user as which PostgreSQL can run. It returns nil if the test's own user is not
// root.
func ordinaryUser(t *testing.T, folder string) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	require.NoError(t, err)
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	require.NoError(t, err)
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	require.NoError(t, err)
	require.NoError(t, os.Chown(folder, int(uid), int(gid)))
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// isReady reports whether the file's health check of the database succeeds.
func (p *postgres) isReady(t *testing.T, check []string) bool {
	t.Helper()
	require.Equal(t, "pg_isready", check[0])
	program := filepath.Join(p.bin, check[0])
	if _, err := os.Stat(program); err != nil {
		program = check[0]
	}
	return exec.Command(program, append(slices.Clone(check[1:]), "--port="+p.port)...).Run() == nil
}

// waitReady returns when the file's health check of the database succeeds.
func (p *postgres) waitReady(t *testing.T, check []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return p.isReady(t, check)
	}, harness.Patience, harness.Tick, "PostgreSQL does not answer %v", check)
}

// query returns the rows of a statement, one string each, fields separated by |.
func (p *postgres) query(t *testing.T, database, statement string) []string {
	t.Helper()
	command := exec.Command("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1", "--host",
		p.host, "--port", p.port, "--username", p.user, "--dbname", database, "--command", statement)
	command.Env = append(os.Environ(), "PGPASSWORD="+p.password, "PGCONNECT_TIMEOUT=10")
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s: %s", statement, out)
	return strings.Fields(string(out))
}

// jobTimeout is the maximum duration of a job of the file.
const jobTimeout = 3 * time.Minute
