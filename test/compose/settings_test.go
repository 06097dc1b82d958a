package compose

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/settings"
)

// binaryInImage is the path of the program in the image.
const binaryInImage = "/usr/bin/slipway"

var slipwayServices = map[string]settings.Group{"slipway-server": settings.Server, "slipway-worker": settings.Worker}

// TestSlipwaySettings_TakeEffect checks that each SLIPWAY_ variable in the file is a valid setting of its command and
// takes effect. It changes the environment of the test process, so it does not run in parallel.
func TestSlipwaySettings_TakeEffect(t *testing.T) {
	for arrangement, files := range setups {
		project := load(t, example(t), files...)
		for name, group := range slipwayServices {
			t.Run(arrangement+"/"+name, func(t *testing.T) {
				requireSettings(t, group, project.Services[name])
			})
		}
	}
}

func requireSettings(t *testing.T, group settings.Group, service types.ServiceConfig) {
	t.Helper()
	require.Equal(t, types.ShellCommand{string(group)}, service.Command)
	for variable, value := range service.Environment {
		if strings.HasPrefix(variable, "SLIPWAY_") {
			t.Setenv(variable, *value)
		}
	}
	flags := pflag.NewFlagSet(service.Name, pflag.ContinueOnError)
	settings.Register(flags, group)
	_, provenance, err := settings.Load(flags)
	require.NoError(t, err)
	effective := map[string]string{}
	for _, entry := range provenance.Entries {
		if string(entry.Source) == "env "+entry.Env {
			effective[entry.Env] = entry.Value
		}
	}
	for variable, value := range service.Environment {
		if strings.HasPrefix(variable, "SLIPWAY_") && *value != "" {
			require.Equal(t, *value, effective[variable], "`slipway %s` has no setting %s", group, variable)
		}
	}
}

// TestSlipwaySettings_RequiredInContainersAreSet checks settings whose defaults are local addresses, which would be
// unreachable from other containers.
func TestSlipwaySettings_RequiredInContainersAreSet(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, needs := range map[string][]string{
			"slipway-server": {"SLIPWAY_LISTEN", "SLIPWAY_TEMPORAL_ADDRESS", "SLIPWAY_KUBECONFIG",
				"SLIPWAY_TEMPORAL_UI", "SLIPWAY_TEMPORAL_UI_LISTEN", "SLIPWAY_TEMPORAL_UI_UPSTREAM",
				"SLIPWAY_TEMPORAL_NAMESPACE", "SLIPWAY_NAMESPACE"},
			"slipway-worker": {"SLIPWAY_METRICS_LISTEN", "SLIPWAY_TEMPORAL_ADDRESS", "SLIPWAY_KUBECONFIG",
				"SLIPWAY_TEMPORAL_NAMESPACE", "SLIPWAY_NAMESPACE"},
		} {
			for _, variable := range needs {
				require.NotNil(t, project.Services[name].Environment[variable], "%s needs %s", name, variable)
			}
		}
		server, worker := project.Services["slipway-server"].Environment, project.Services["slipway-worker"].Environment
		for _, variable := range []string{"SLIPWAY_TEMPORAL_ADDRESS", "SLIPWAY_TEMPORAL_NAMESPACE", "SLIPWAY_NAMESPACE",
			"SLIPWAY_KUBECONFIG", "SLIPWAY_CONTEXT"} {
			require.Equal(t, *server[variable], *worker[variable], "server and worker must have the same %s", variable)
		}
		require.Equal(t, *server["SLIPWAY_TEMPORAL_NAMESPACE"],
			*project.Services["temporal-namespace"].Environment["TEMPORAL_NAMESPACE"],
			"the created namespace must be the used one")
		listen := *server["SLIPWAY_TEMPORAL_UI_LISTEN"]
		published := listen[strings.LastIndexByte(listen, ':')+1:]
		for _, port := range project.Services["slipway-server"].Ports {
			if fmt.Sprint(port.Target) == published {
				published = port.Published
			}
		}
		require.Equal(t, "http://127.0.0.1:"+published, *server["SLIPWAY_TEMPORAL_UI"],
			"links must lead to the published UI")
	})
}

func TestKubeconfigIsMountedWhereItIsRead(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name := range slipwayServices {
			service := project.Services[name]
			require.Equal(t, *service.Environment["SLIPWAY_KUBECONFIG"], service.Volumes[0].Target, name)
			require.Equal(t, filepath.Join(root(t), "kubeconfig"), service.Volumes[0].Source,
				"%s: a relative path must be relative to the file", name)
			require.True(t, service.Volumes[0].ReadOnly, name)
		}
		require.Len(t, project.Services["slipway-worker"].Volumes, 1,
			"a worker serves no API and must not get the token")
	})
}

// binary returns the path of slipway as built by `make test`.
func binary(t testing.TB) string {
	t.Helper()
	folder := os.Getenv("SLIPWAY_TEST_BIN")
	if folder == "" {
		t.Skip("needs slipway's binary: run it by `make test`")
	}
	return filepath.Join(folder, "slipway")
}

// TestAPI_RequiresToken: the server listens on every address of its container, so it must require a token.
func TestAPI_RequiresToken(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		server := project.Services["slipway-server"]
		require.Len(t, server.Volumes, 2)
		token := server.Volumes[1]
		require.Equal(t, *server.Environment["SLIPWAY_API_TOKEN_FILE"], token.Target,
			"the token must be mounted where it is read")
		require.Equal(t, filepath.Join(root(t), "api-token"), token.Source)
		require.True(t, token.ReadOnly)
		require.False(t, bool(token.Bind.CreateHostPath), "a missing file must be an error, not create a folder")
	})
}

func TestCommandsExist(t *testing.T) {
	t.Parallel()
	slipway := binary(t)
	for name, group := range slipwayServices {
		help, err := exec.Command(slipway, string(group), "--help").CombinedOutput()
		require.NoError(t, err, "%s", help)
		require.Contains(t, string(help), "\n  slipway "+string(group)+" [flags]", "%s must run an existing command",
			name)
	}
}

// TestSlipwayHealthChecks runs the health checks of Slipway's containers against a process that is ready and one that
// is not.
func TestSlipwayHealthChecks(t *testing.T) {
	t.Parallel()
	slipway := binary(t)
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name := range slipwayServices {
			service := project.Services[name]
			check := []string(service.HealthCheck.Test)
			require.Equal(t, []string{"CMD", binaryInImage, "healthcheck"}, check[:3], name)
			require.Len(t, check, 4, name)
			address, err := url.Parse(check[3])
			require.NoError(t, err)
			require.Equal(t, listenPort(t, service), address.Port(),
				"%s must check the port on which the process listens", name)
			require.Equal(t, "/readyz", address.Path)

			for status, ends := range map[int]int{http.StatusOK: 0, http.StatusServiceUnavailable: 1} {
				require.Equal(t, ends, healthcheckExit(t, slipway, check[2], address.Path, status),
					"%s: exit code when /readyz answers %d", name, status)
			}
		}
	})
}

func listenPort(t *testing.T, service types.ServiceConfig) string {
	t.Helper()
	listen := service.Environment["SLIPWAY_LISTEN"]
	if listen == nil {
		listen = service.Environment["SLIPWAY_METRICS_LISTEN"]
	}
	require.NotNil(t, listen, service.Name)
	return (*listen)[strings.LastIndex(*listen, ":")+1:]
}

func healthcheckExit(t *testing.T, slipway, command, path string, status int) int {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	run := exec.Command(slipway, command, server.URL+path)
	_ = run.Run()
	return run.ProcessState.ExitCode()
}
