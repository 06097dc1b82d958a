package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// TestLongComposeStack_RunsRelease starts each service as soon as its dependencies allow, with the file's own commands,
// environments and health checks, and then carries out a release, with Temporal on PostgreSQL.
func TestLongComposeStack_RunsRelease(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := harness.SharedStack(t)
	variables := example(t)
	variables["SLIPWAY_KUBECONFIG"] = stack.Kubeconfig
	variables["SLIPWAY_NAMESPACE"] = stack.Namespace(t, "home")
	variables["TEMPORAL_NAMESPACE"] = "shop"
	variables["SLIPWAY_API_TOKEN_FILE"] = filepath.Join(t.TempDir(), "api-token")
	require.NoError(t, os.WriteFile(variables["SLIPWAY_API_TOKEN_FILE"], []byte(sampleToken), 0o600))
	r := &localStack{project: load(t, variables, composeFile), containers: map[string]*container{},
		processes: map[string]*harness.Process{}, ports: map[string]string{}}
	bin, apps := programs.Folder(t, "compose"), stack.Namespace(t, "apps")
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
	r.database.requireSchema(t, "temporal", "temporal_visibility")
	r.requireLowLoad(t)
	r.requireUI(t)

	for name := range r.project.Services {
		if isJob(r.project, name) {
			t.Logf("second run of %s: %s", name, lastLine(r.containers[name].runJob(t)))
		}
	}
	release(t, stack, "http://127.0.0.1:"+r.ports["slipway-server:8080"], apps)

	r.database.stop()
	require.Eventually(t, func() bool {
		return !r.containers["temporal"].healthy()
	}, harness.Patience, 5*harness.Tick, "Temporal must be unhealthy without its database")
}

// build creates the container of each service. This function and those below contain all differences from the file.
func (r *localStack) build(t *testing.T, bin, slipway string) {
	t.Helper()
	r.buildTemporal(t, bin)
	r.buildUI(t)
	r.buildSlipway(t, slipway)
}

func (r *localStack) buildUI(t *testing.T) {
	t.Helper()
	c := r.containers["temporal-ui"]
	// The command of the image's start script, with the folder of the image.
	c.prefix = []string{filepath.Join(c.path, "temporal-ui-server"), "--root",
		moduleFolder(t, "github.com/temporalio/ui-server/v2"), "--env", "docker", "start"}
	c.replace("temporal:7233", "127.0.0.1:"+r.port(t, "temporal:7233"), "TEMPORAL_ADDRESS")
	c.replace("8080", r.port(t, "temporal-ui:8080"), "TEMPORAL_UI_PORT")
	c.checks["127.0.0.1:8080"] = "127.0.0.1:" + r.port(t, "temporal-ui:8080")
}

func (r *localStack) buildSlipway(t *testing.T, slipway string) {
	t.Helper()
	for _, variable := range []string{"SLIPWAY_KUSCIA_LISTEN", "SLIPWAY_KUSCIA_GRPC_LISTEN"} {
		r.containers["slipway-server"].add(variable, "127.0.0.1:0")
	}
	server := r.containers["slipway-server"]
	server.replace("0.0.0.0:8233", "127.0.0.1:"+r.port(t, "slipway-server:8233"), "SLIPWAY_TEMPORAL_UI_LISTEN")
	server.replace("http://temporal-ui:8080", "http://127.0.0.1:"+r.port(t, "temporal-ui:8080"),
		"SLIPWAY_TEMPORAL_UI_UPSTREAM")
	listens := map[string][2]string{"slipway-server": {"SLIPWAY_LISTEN", "8080"},
		"slipway-worker": {"SLIPWAY_METRICS_LISTEN", "9090"}}
	for name, listen := range listens {
		c := r.containers[name]
		c.prefix = []string{slipway}
		c.paths[binaryInImage] = slipway
		c.replace("temporal:7233", "127.0.0.1:"+r.port(t, "temporal:7233"), "SLIPWAY_TEMPORAL_ADDRESS")
		c.replace("0.0.0.0:"+listen[1], "127.0.0.1:"+r.port(t, name+":"+listen[1]), listen[0])
		c.checks["127.0.0.1:"+listen[1]] = "127.0.0.1:" + r.port(t, name+":"+listen[1])
	}
}
