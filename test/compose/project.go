package compose

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const (
	composeFile     = "docker-compose.yml"
	hostNetworkFile = "deploy/compose/host-network.yml"
	publishFile     = "deploy/compose/publish-temporal.yml"
)

// setups are the combinations of files with which the documentation starts the stack.
var setups = map[string][]string{
	"Default":     {composeFile},
	"HostNetwork": {composeFile, hostNetworkFile},
	"Published":   {composeFile, publishFile},
}

// forEachSetup runs a check on the project of each setup, with the variables of .env.example and the three that have no
// default.
func forEachSetup(t *testing.T, check func(t *testing.T, project *types.Project)) {
	for name, files := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, load(t, example(t), files...))
		})
	}
}

// root returns the folder of the repository.
func root(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(path, composeFile))
	return path
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	require.NoError(t, err)
	return string(text)
}

// exampleFile returns the variables of .env.example.
func exampleFile(t testing.TB) map[string]string {
	t.Helper()
	variables, err := dotenv.Read(filepath.Join(root(t), ".env.example"))
	require.NoError(t, err)
	return variables
}

// example returns .env.example with the missing values filled in.
func example(t testing.TB) map[string]string {
	t.Helper()
	variables := exampleFile(t)
	variables["SLIPWAY_KUBECONFIG"] = "./kubeconfig"
	variables["POSTGRES_PASSWORD"] = samplePassword
	variables["SLIPWAY_API_TOKEN_FILE"] = "./api-token"
	return variables
}

const (
	samplePassword = "correct-horse.battery_staple~1"
	sampleToken    = "a-token-of-the-tests-of-compose.yml"
)

// without returns a copy of the variables without one.
func without(variables map[string]string, name string) map[string]string {
	rest := maps.Clone(variables)
	delete(rest, name)
	return rest
}

func load(t testing.TB, variables map[string]string, files ...string) *types.Project {
	t.Helper()
	project, err := tryLoad(t, variables, files...)
	require.NoError(t, err)
	return project
}

// tryLoad reads the files as Docker Compose does, with only these variables and not the environment of the test
// process.
func tryLoad(t testing.TB, variables map[string]string, files ...string) (*types.Project, error) {
	t.Helper()
	details := types.ConfigDetails{WorkingDir: root(t), Environment: variables}
	for _, file := range files {
		details.ConfigFiles = append(details.ConfigFiles, types.ConfigFile{Filename: filepath.Join(root(t), file)})
	}
	return loader.LoadWithContext(t.Context(), details)
}

// isJob reports whether a service runs to completion, for which other services wait.
func isJob(project *types.Project, name string) bool {
	for _, service := range project.Services {
		if service.DependsOn[name].Condition == types.ServiceConditionCompletedSuccessfully {
			return true
		}
	}
	return false
}
