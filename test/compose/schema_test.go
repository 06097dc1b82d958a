package compose

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// schemaJob returns an empty PostgreSQL and the file's job that sets up its databases.
func schemaJob(t *testing.T) (Database, *container) {
	t.Helper()
	project := load(t, example(t), composeFile)
	database := StartDatabase(t)
	job := newContainer(t, project.Services["temporal-schema"], project)
	job.replace("postgresql", database.Host, "SQL_HOST")
	job.replace("5432", database.Port, "SQL_PORT")
	job.secret(database.p.passwordFile)
	return database, job
}

// TestLongSchemaJob_SetsUpDatabasesOnce checks that the job sets up both databases on a real PostgreSQL, and changes
// nothing the second time.
func TestLongSchemaJob_SetsUpDatabasesOnce(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	database, job := schemaJob(t)
	requireNoSchema(t, database)
	job.runJob(t)
	database.RequireSchema(t, "temporal", "temporal_visibility")
	before := fingerprint(t, database)
	job.runJob(t)
	require.Equal(t, before, fingerprint(t, database), "a second `up` must change nothing")
}

func requireNoSchema(t *testing.T, database Database) {
	t.Helper()
	require.NotContains(t, database.Query(t, "postgres", "SELECT datname FROM pg_database"), "temporal_visibility",
		"the database must be empty at first")
}

// fingerprint returns every column of every table, and the history of schema updates.
func fingerprint(t *testing.T, database Database) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"temporal", "temporal_visibility"} {
		all = append(all, database.Query(t, name, "SELECT table_name || '.' || column_name || ':' || udt_name FROM "+
			"information_schema.columns WHERE table_schema = 'public' ORDER BY 1")...)
		all = append(all, database.Query(t, name, "SELECT version_partition || '/' || year || '/' || month || '/' || "+
			"new_version || '/' || old_version FROM schema_update_history ORDER BY update_time")...)
	}
	require.NotEmpty(t, all)
	return all
}

// TestDatabasePassword_IsRefused_WhenUnsupported checks that a password which Temporal's configuration cannot contain
// is refused before anything is written.
func TestDatabasePassword_IsRefused_WhenUnsupported(t *testing.T) {
	t.Parallel()
	project := load(t, example(t), composeFile)
	for password, want := range map[string]string{
		"":                 "POSTGRES_PASSWORD is empty: set it in .env",
		"with space":       "letters, digits and . _ ~ - only",
		`quote"`:           "letters, digits and . _ ~ - only",
		`back\slash`:       "letters, digits and . _ ~ - only",
		"two\nlines":       "letters, digits and . _ ~ - only",
		"umlaut-\u00e4":    "letters, digits and . _ ~ - only",
		samplePassword:     "the password came through: " + samplePassword,
		"A9._~-last\n":     "the password came through: A9._~-last",
		"{{env \"HOME\"}}": "letters, digits and . _ ~ - only",
	} {
		file := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(file, []byte(password), 0o600))
		for _, service := range []string{"temporal-schema", "temporal"} {
			job := newContainer(t, project.Services[service], project)
			job.service.Command = types.ShellCommand{"sh", "-c",
				`echo "the password came through: $SQL_PASSWORD"; [ "$SQL_PASSWORD" = "$POSTGRES_PWD" ]`}
			job.secret(file)
			out, err := job.command(context.Background()).CombinedOutput()
			require.Contains(t, string(out), want, "%s with the password %q", service, password)
			require.Equal(t, strings.HasPrefix(want, "the password"), err == nil, "%s with the password %q: %s",
				service, password, out)
		}
	}
}

func TestLongSchemaJob_Fails_WhenDatabaseUnreachable(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	project := load(t, example(t), composeFile)
	job := newContainer(t, project.Services["temporal-schema"], project)
	job.replace("postgresql", "127.0.0.1", "SQL_HOST")
	job.replace("5432", harness.FreePort(t), "SQL_PORT")
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(samplePassword), 0o600))
	job.secret(file)
	job.path = programs.Folder(t, "compose")
	out, err := job.command(t.Context()).CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "a failed job must exit with an error")
	require.Contains(t, string(out), "connection refused")
}

// TestLongSchemaJob_UpgradesEarlierSchema checks that the job, which runs before the server, upgrades an earlier
// Temporal's databases and keeps their data.
func TestLongSchemaJob_UpgradesEarlierSchema(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	database, job := schemaJob(t)
	const earlier = "1.9"
	before := *job
	before.service.Command = types.ShellCommand{"sh", "-c",
		`temporal-sql-tool --database temporal create-database && temporal-sql-tool --database temporal setup-schema --version 0.0 &&
		temporal-sql-tool --database temporal update-schema --schema-name postgresql/v12/temporal --version ` + earlier}
	before.runJob(t)
	require.Equal(t, []string{earlier}, database.Query(t, "temporal", "SELECT curr_version FROM schema_version"))
	database.Query(t, "temporal", "INSERT INTO cluster_membership (membership_partition, host_id, rpc_address, "+
		"rpc_port, role, session_start, last_heartbeat, record_expiry) "+
		"VALUES (0, 'abc', 'earlier', 1, 1, now(), now(), now())")
	job.runJob(t)
	database.RequireSchema(t, "temporal", "temporal_visibility")
	require.Equal(t, []string{"earlier"}, database.Query(t, "temporal", "SELECT rpc_address FROM cluster_membership"),
		"the data must stay")
}
