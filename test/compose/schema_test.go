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

// schemaJob is an empty PostgreSQL, and the file's job that sets its databases up.
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

// The job of the file sets up both databases on a real PostgreSQL, and changes nothing the second time.
func TestLongSchema(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	database, job := schemaJob(t)
	requireNoSchema(t, database)
	job.runJob(t)
	database.RequireSchema(t, "temporal", "temporal_visibility")
	before := fingerprint(t, database)
	job.runJob(t)
	require.Equal(t, before, fingerprint(t, database), "a second `up` changes nothing")
}

func requireNoSchema(t *testing.T, database Database) {
	t.Helper()
	require.NotContains(t, database.Query(t, "postgres", "SELECT datname FROM pg_database"), "temporal_visibility", "the test begins with nothing")
}

// fingerprint is every column of every table, and the log of the schema's updates.
func fingerprint(t *testing.T, database Database) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"temporal", "temporal_visibility"} {
		all = append(all, database.Query(t, name, "SELECT table_name || '.' || column_name || ':' || udt_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1")...)
		all = append(all, database.Query(t, name, "SELECT version_partition || '/' || year || '/' || month || '/' || new_version || '/' || old_version FROM schema_update_history ORDER BY update_time")...)
	}
	require.NotEmpty(t, all)
	return all
}

// A password that Temporal's configuration cannot carry is refused before anything is written.
func TestPasswordsThatCannotBeUsed(t *testing.T) {
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
			job.service.Command = types.ShellCommand{"sh", "-c", `echo "the password came through: $SQL_PASSWORD"; [ "$SQL_PASSWORD" = "$POSTGRES_PWD" ]`}
			job.secret(file)
			out, err := job.command(context.Background()).CombinedOutput()
			require.Contains(t, string(out), want, "%s with the password %q", service, password)
			require.Equal(t, strings.HasPrefix(want, "the password"), err == nil, "%s with the password %q: %s", service, password, out)
		}
	}
}

func TestLongSchemaJobFailsWhenTheDatabaseIsAway(t *testing.T) {
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
	require.ErrorAs(t, err, &exit, "a failed job must not look like one that is done")
	require.Contains(t, string(out), "connection refused")
}

// Databases of an earlier Temporal are brought to the schema of this version by the job that runs before the server, with what they hold.
func TestLongSchemaOfAnEarlierTemporal(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	database, job := schemaJob(t)
	const earlier = "1.9"
	before := *job
	before.service.Command = types.ShellCommand{"sh", "-c", `temporal-sql-tool --database temporal create-database && temporal-sql-tool --database temporal setup-schema --version 0.0 &&
		temporal-sql-tool --database temporal update-schema --schema-name postgresql/v12/temporal --version ` + earlier}
	before.runJob(t)
	require.Equal(t, []string{earlier}, database.Query(t, "temporal", "SELECT curr_version FROM schema_version"))
	database.Query(t, "temporal", "INSERT INTO cluster_membership (membership_partition, host_id, rpc_address, rpc_port, role, session_start, last_heartbeat, record_expiry) "+
		"VALUES (0, 'abc', 'earlier', 1, 1, now(), now(), now())")
	job.runJob(t)
	database.RequireSchema(t, "temporal", "temporal_visibility")
	require.Equal(t, []string{"earlier"}, database.Query(t, "temporal", "SELECT rpc_address FROM cluster_membership"), "what it holds stays")
}
