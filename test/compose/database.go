package compose

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// Database is an empty PostgreSQL of one test, configured like that of the compose file.
type Database struct {
	Host, Port, User, Password string
	p                          *postgres
}

// StartDatabase starts a database that ends with the test.
func StartDatabase(t *testing.T) Database {
	t.Helper()
	service := load(t, example(t), composeFile).Services["postgresql"]
	p := startPostgres(t, *service.Environment["POSTGRES_USER"], samplePassword)
	p.waitReady(t, service.HealthCheck.Test[1:])
	return Database{Host: p.host, Port: p.port, User: p.user, Password: p.password, p: p}
}

// Query returns the rows of a statement, one string each, fields separated by |.
func (d Database) Query(t *testing.T, database, statement string) []string {
	t.Helper()
	return d.p.query(t, database, statement)
}

// Encrypt makes the database accept only encrypted connections from now on, and returns the file of the CA of its
// certificate.
func (d Database) Encrypt(t *testing.T) (ca string) {
	t.Helper()
	authority := harness.NewAuthority(t)
	cert, key := authority.Issue()
	d.p.stop()
	for flag, from := range map[string]string{"ssl_cert_file": cert, "ssl_key_file": key} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		file := filepath.Join(d.p.folder, flag)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		if d.p.credential != nil {
			require.NoError(t, os.Chown(file, int(d.p.credential.Uid), int(d.p.credential.Gid)))
		}
		d.p.flags = append(d.p.flags, "-c", flag+"="+file)
	}
	d.p.flags = append(d.p.flags, "-c", "ssl=on")
	access := filepath.Join(d.p.data(), "pg_hba.conf")
	text, err := os.ReadFile(access)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(access, regexp.MustCompile(`(?m)^host `).ReplaceAll(text, []byte("hostssl ")),
		0o600))
	d.p.start(t)
	d.p.waitReady(t, load(t, example(t), composeFile).Services["postgresql"].HealthCheck.Test[1:])
	return authority.File
}

// RequireSchema requires in both databases the schema version that this version's server checks at its start.
func (d Database) RequireSchema(t *testing.T, main, visibility string) {
	t.Helper()
	d.p.requireSchema(t, main, visibility)
}

func (p *postgres) requireSchema(t *testing.T, main, visibility string) {
	t.Helper()
	source := filepath.Join(moduleFolder(t, "go.temporal.io/server"), "schema/postgresql/v12/version.go")
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	for name, constant := range map[string]string{main: "Version", visibility: "VisibilityVersion"} {
		found := regexp.MustCompile(`(?m)^const ` + constant + ` = "([\d.]+)"`).FindStringSubmatch(string(text))
		require.NotNil(t, found, "%s in %s", constant, source)
		require.Equal(t, []string{found[1]}, p.query(t, name, "SELECT curr_version FROM schema_version"),
			"schema of %s", name)
	}
	require.Contains(t, p.query(t, main, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"), "executions")
	require.Contains(t, p.query(t, visibility, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"),
		"executions_visibility")
}
