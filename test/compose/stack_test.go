package compose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// running is the stack of the file, started on this machine as Docker Compose would start it in containers.
type running struct {
	project    *types.Project
	database   *postgres
	containers map[string]*container
	processes  map[string]*harness.Process
	// ports are those of here, by the address that the containers know.
	ports map[string]string
}

// The whole stack: each service is started when what it waits for is there and no earlier, with the file's own commands, environments
// and health checks. It then carries out a release, with Temporal on PostgreSQL.
func TestLongTheStackReleases(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	variables := example(t)
	variables["SLIPWAY_KUBECONFIG"] = stack.Kubeconfig
	variables["SLIPWAY_NAMESPACE"] = stack.Namespace(t, "home")
	variables["TEMPORAL_NAMESPACE"] = "shop"
	variables["SLIPWAY_API_TOKEN_FILE"] = filepath.Join(t.TempDir(), "api-token")
	require.NoError(t, os.WriteFile(variables["SLIPWAY_API_TOKEN_FILE"], []byte(sampleToken), 0o600))
	r := &running{project: load(t, variables, composeFile), containers: map[string]*container{}, processes: map[string]*harness.Process{}, ports: map[string]string{}}
	bin, apps := programs(t), stack.Namespace(t, "apps")
	r.build(t, bin, stack.Binary("slipway"))

	for _, name := range startOrder(t, r.project) {
		for needed, how := range r.project.Services[name].DependsOn {
			if how.Condition == types.ServiceConditionHealthy {
				r.waitHealthy(t, needed)
			}
		}
		r.start(t, name)
	}
	for name := range r.project.Services {
		if !isJob(r.project, name) {
			r.waitHealthy(t, name)
		}
	}
	requireSchema(t, r.database)
	r.requireLittleLoad(t)
	r.requireUI(t)

	for name := range r.project.Services {
		if isJob(r.project, name) {
			t.Logf("second run of %s: %s", name, lastLine(r.containers[name].runJob(t)))
		}
	}
	release(t, stack, "http://127.0.0.1:"+r.ports["slipway-server:8080"], apps)

	r.database.stop()
	require.Eventually(t, func() bool { return !r.containers["temporal"].healthy() }, harness.Patience, 5*harness.Tick, "Temporal without its database is not healthy")
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (r *running) port(t *testing.T, address string) string {
	t.Helper()
	if r.ports[address] == "" {
		r.ports[address] = harness.FreePort(t)
	}
	return r.ports[address]
}

// start begins a service: a job is run to its end, another is left to get healthy.
func (r *running) start(t *testing.T, name string) {
	t.Helper()
	if name == "postgresql" {
		return // runs already: the containers of the others are made with its address
	}
	if isJob(r.project, name) {
		t.Logf("%s: %s", name, lastLine(r.containers[name].runJob(t)))
		return
	}
	r.processes[name] = r.containers[name].start(t)
}

func (r *running) waitHealthy(t *testing.T, name string) {
	t.Helper()
	if name == "postgresql" {
		r.database.waitReady(t, r.project.Services[name].HealthCheck.Test[1:])
		return
	}
	process := r.processes[name]
	require.Eventually(t, func() bool { return process.Ended() || r.containers[name].healthy() }, harness.Patience, 5*harness.Tick, "%s does not get healthy", name)
	require.False(t, process.Ended(), "%s has ended: %s", name, process.Output())
}

// build makes a container of each service: what differs here from there is in this function and the ones below, and nowhere else.
func (r *running) build(t *testing.T, bin, slipway string) {
	t.Helper()
	r.database = startPostgres(t, *r.project.Services["postgresql"].Environment["POSTGRES_USER"], samplePassword)
	for name, service := range r.project.Services {
		c := newContainer(t, service, r.project)
		c.path = bin
		r.containers[name] = c
	}
	schema := r.containers["temporal-schema"]
	schema.replace("postgresql", r.database.host, "SQL_HOST")
	schema.replace("5432", r.database.port, "SQL_PORT")
	schema.secret(r.database.passwordFile)
	r.containers["temporal-namespace"].replace("http://temporal:7243", "http://127.0.0.1:"+r.port(t, "temporal:7243"), "TEMPORAL_HTTP_ADDRESS")
	r.buildTemporal(t)
	r.buildUI(t)
	r.buildSlipway(t, slipway)
}

func (r *running) buildTemporal(t *testing.T) {
	t.Helper()
	c := r.containers["temporal"]
	require.Equal(t, types.ShellCommand{"/etc/temporal/entrypoint.sh"}, c.service.Command)
	// The image's own start script, by a shell that has what Alpine's has.
	c.service.Command = types.ShellCommand{"bash", filepath.Join(moduleFolder(t, "go.temporal.io/server"), "docker/scripts/sh/entrypoint.sh")}
	c.secret(r.database.passwordFile)
	c.replace("postgresql", r.database.host, "POSTGRES_SEEDS")
	c.replace("5432", r.database.port, "DB_PORT")
	c.replace("0.0.0.0", "127.0.0.1", "BIND_ON_IP")
	c.add("FRONTEND_GRPC_PORT", r.port(t, "temporal:7233"))
	c.add("FRONTEND_HTTP_PORT", r.port(t, "temporal:7243"))
	for _, variable := range []string{"FRONTEND_MEMBERSHIP_PORT", "HISTORY_GRPC_PORT", "HISTORY_MEMBERSHIP_PORT", "MATCHING_GRPC_PORT", "MATCHING_MEMBERSHIP_PORT", "WORKER_GRPC_PORT", "WORKER_MEMBERSHIP_PORT"} {
		c.add(variable, harness.FreePort(t))
	}
	c.checks["127.0.0.1:7243"] = "127.0.0.1:" + r.port(t, "temporal:7243")
}

func (r *running) buildUI(t *testing.T) {
	t.Helper()
	c := r.containers["temporal-ui"]
	// As the image's start script has it, in the folder that the image has.
	c.before = []string{filepath.Join(c.path, "temporal-ui-server"), "--root", moduleFolder(t, "github.com/temporalio/ui-server/v2"), "--env", "docker", "start"}
	c.replace("temporal:7233", "127.0.0.1:"+r.port(t, "temporal:7233"), "TEMPORAL_ADDRESS")
	c.replace("8080", r.port(t, "temporal-ui:8080"), "TEMPORAL_UI_PORT")
	c.checks["127.0.0.1:8080"] = "127.0.0.1:" + r.port(t, "temporal-ui:8080")
}

func (r *running) buildSlipway(t *testing.T, slipway string) {
	t.Helper()
	for _, variable := range []string{"SLIPWAY_KUSCIA_LISTEN", "SLIPWAY_KUSCIA_GRPC_LISTEN"} {
		r.containers["slipway-server"].add(variable, "127.0.0.1:0")
	}
	listens := map[string][2]string{"slipway-server": {"SLIPWAY_LISTEN", "8080"}, "slipway-worker": {"SLIPWAY_METRICS_LISTEN", "9090"}}
	for name, listen := range listens {
		c := r.containers[name]
		c.before = []string{slipway}
		c.paths[binaryInImage] = slipway
		c.replace("temporal:7233", "127.0.0.1:"+r.port(t, "temporal:7233"), "SLIPWAY_TEMPORAL_ADDRESS")
		c.replace("0.0.0.0:"+listen[1], "127.0.0.1:"+r.port(t, name+":"+listen[1]), listen[0])
		c.checks["127.0.0.1:"+listen[1]] = "127.0.0.1:" + r.port(t, name+":"+listen[1])
	}
}
