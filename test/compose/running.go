package compose

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/graph"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

// localStack is the stack of the file, started on this machine in the order in which Docker Compose would start its
// containers.
type localStack struct {
	project  *types.Project
	database *postgres
	// folder is the database's data folder; "" means a new one.
	folder     string
	containers map[string]*container
	processes  map[string]*harness.Process
	// ports maps addresses of the containers to local ports.
	ports map[string]string
}

func (r *localStack) port(t *testing.T, address string) string {
	t.Helper()
	if r.ports[address] == "" {
		r.ports[address] = harness.FreePort(t)
	}
	return r.ports[address]
}

// start starts a service. A job is run to completion.
func (r *localStack) start(t *testing.T, name string) {
	t.Helper()
	if name == "postgresql" {
		return // already running: the other containers need its address
	}
	if isJob(r.project, name) {
		t.Logf("%s: %s", name, lastLine(r.containers[name].runJob(t)))
		return
	}
	r.processes[name] = r.containers[name].start(t)
}

func (r *localStack) waitHealthy(t *testing.T, name string) {
	t.Helper()
	if name == "postgresql" {
		r.database.waitReady(t, r.project.Services[name].HealthCheck.Test[1:])
		return
	}
	process := r.processes[name]
	require.Eventually(t, func() bool {
		return process.Ended() || r.containers[name].healthy()
	}, harness.Patience, 5*harness.Tick, "%s did not become healthy", name)
	require.False(t, process.Ended(), "%s has ended: %s", name, process.Output())
}

// buildTemporal creates the container of each service, and adapts those of Temporal and its database to this machine.
func (r *localStack) buildTemporal(t *testing.T, bin string) {
	t.Helper()
	user := *r.project.Services["postgresql"].Environment["POSTGRES_USER"]
	if r.folder == "" {
		r.database = startPostgres(t, user, samplePassword)
	} else {
		r.database = startPostgresIn(t, r.folder, user, samplePassword)
	}
	for name, service := range r.project.Services {
		c := newContainer(t, service, r.project)
		c.path = bin
		r.containers[name] = c
	}
	schema := r.containers["temporal-schema"]
	schema.replace("postgresql", r.database.host, "SQL_HOST")
	schema.replace("5432", r.database.port, "SQL_PORT")
	schema.secret(r.database.passwordFile)
	r.containers["temporal-namespace"].replace("http://temporal:7243", "http://127.0.0.1:"+r.port(t, "temporal:7243"),
		"TEMPORAL_HTTP_ADDRESS")
	c := r.containers["temporal"]
	require.Equal(t, types.ShellCommand{"/etc/temporal/entrypoint.sh"}, c.service.Command)
	// The image's own start script, run by bash, which has the features of Alpine's shell.
	c.service.Command = types.ShellCommand{"bash",
		filepath.Join(moduleFolder(t, "go.temporal.io/server"), "docker/scripts/sh/entrypoint.sh")}
	c.secret(r.database.passwordFile)
	c.replace("postgresql", r.database.host, "POSTGRES_SEEDS")
	c.replace("5432", r.database.port, "DB_PORT")
	c.replace("0.0.0.0", "127.0.0.1", "BIND_ON_IP")
	c.add("FRONTEND_GRPC_PORT", r.port(t, "temporal:7233"))
	c.add("FRONTEND_HTTP_PORT", r.port(t, "temporal:7243"))
	for _, variable := range []string{"FRONTEND_MEMBERSHIP_PORT", "HISTORY_GRPC_PORT", "HISTORY_MEMBERSHIP_PORT",
		"MATCHING_GRPC_PORT", "MATCHING_MEMBERSHIP_PORT", "WORKER_GRPC_PORT", "WORKER_MEMBERSHIP_PORT"} {
		c.add(variable, harness.FreePort(t))
	}
	c.checks["127.0.0.1:7243"] = "127.0.0.1:" + r.port(t, "temporal:7243")
}

// startOrder returns an order in which the services may start.
func startOrder(t *testing.T, project *types.Project) []string {
	t.Helper()
	var order []string
	err := graph.InDependencyOrder(t.Context(), project,
		func(_ context.Context, name string, _ types.ServiceConfig) error {
			order = append(order, name)
			return nil
		}, graph.WithMaxConcurrency(1))
	require.NoError(t, err)
	return order
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
