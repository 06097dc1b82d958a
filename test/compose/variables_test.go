package compose

import (
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// variablesOf are the variables that a file interpolates, before anything is resolved.
func variablesOf(t *testing.T, file string) map[string]template.Variable {
	t.Helper()
	text := strings.ReplaceAll(readFile(t, file), "!reset", "")
	var document map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	return template.ExtractVariables(document, nil)
}

func TestEveryVariableIsInTheExampleWithItsDefault(t *testing.T) {
	t.Parallel()
	documented, used := exampleFile(t), map[string]bool{}
	for _, file := range []string{composeFile, hostNetworkFile} {
		for name, variable := range variablesOf(t, file) {
			used[name] = true
			value, ok := documented[name]
			require.True(t, ok, "%s uses %s, which .env.example does not explain", file, name)
			require.Equal(t, variable.DefaultValue, value, "the default of %s in %s is the one that .env.example shows", name, file)
		}
	}
	for _, secret := range load(t, example(t), composeFile).Secrets {
		require.NotEmpty(t, secret.Environment, "a secret comes from the environment")
		used[secret.Environment] = true
		require.Contains(t, documented, secret.Environment)
	}
	for name := range documented {
		require.True(t, used[name], ".env.example explains %s, which nothing uses", name)
	}
}

// An unset variable without a default becomes an empty text with a mere warning; none may do that.
var bareVariable = regexp.MustCompile(`(^|[^$])\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_])`)

func TestNoVariableIsSilentlyEmpty(t *testing.T) {
	t.Parallel()
	require.Regexp(t, bareVariable, "a: ${NAME}", "the pattern finds what it is for")
	require.Regexp(t, bareVariable, "a: $NAME", "the pattern finds what it is for")
	for _, file := range []string{composeFile, hostNetworkFile} {
		for n, line := range strings.Split(readFile(t, file), "\n") {
			require.NotRegexp(t, bareVariable, line, "%s:%d: give the variable a default, or an error with :?", file, n+1)
		}
	}
}

func TestWhatHasNoDefaultIsAskedFor(t *testing.T) {
	t.Parallel()
	_, err := tryLoad(t, without(example(t), "SLIPWAY_KUBECONFIG"), composeFile)
	require.ErrorContains(t, err, "name the kubeconfig of the home cluster", "a missing kubeconfig is refused with a sentence that helps")

	_, err = tryLoad(t, exampleFile(t), composeFile)
	require.ErrorContains(t, err, "name the kubeconfig of the home cluster", "an .env that was copied and not filled in is refused too")

	whole := example(t)
	_, err = tryLoad(t, without(whole, "SLIPWAY_API_TOKEN_FILE"), composeFile)
	require.ErrorContains(t, err, "name the file of the token of the HTTP API", "nor is there an API without a token")
	three := map[string]string{"SLIPWAY_KUBECONFIG": whole["SLIPWAY_KUBECONFIG"], "POSTGRES_PASSWORD": whole["POSTGRES_PASSWORD"],
		"SLIPWAY_API_TOKEN_FILE": whole["SLIPWAY_API_TOKEN_FILE"]}
	require.Equal(t, resolved(t, load(t, whole, composeFile)), resolved(t, load(t, three, composeFile)), "the three that have no default are enough")
}

// resolved is the file as `docker compose config` shows it.
func resolved(t *testing.T, project *types.Project) string {
	t.Helper()
	text, err := project.MarshalYAML()
	require.NoError(t, err)
	return string(text)
}

// With other values each shows up where it belongs: a variable that nothing heeds would not.
func TestVariablesAreHeeded(t *testing.T) {
	t.Parallel()
	variables := map[string]string{
		"SLIPWAY_KUBECONFIG": "/home/me/kubeconfig", "POSTGRES_PASSWORD": "other", "SLIPWAY_UID": "1234", "SLIPWAY_GID": "2345", "SLIPWAY_CONTEXT": "prod",
		"SLIPWAY_NAMESPACE": "releases", "SLIPWAY_INSTALL_CRDS": "false", "SLIPWAY_LOG_LEVEL": "debug", "SLIPWAY_VERSION": "v9.8.7", "SLIPWAY_PORT": "18080",
		"TEMPORAL_PORT": "17233", "TEMPORAL_UI_PORT": "18233", "SLIPWAY_WORKER_PORT": "19090", "TEMPORAL_NAMESPACE": "shop", "TEMPORAL_RETENTION_DAYS": "77",
		"SLIPWAY_API_TOKEN_FILE": "/home/me/token-of-the-api", "SLIPWAY_ALLOWED_HOSTS": "slipway.example",
		"TEMPORAL_LOG_LEVEL": "error", "GOPROXY": "https://modules.example",
	}
	text := ""
	for _, files := range arrangements {
		text += resolved(t, load(t, variables, files...))
	}
	for name, value := range variables {
		if name == "POSTGRES_PASSWORD" {
			require.NotContains(t, text, value, "a password is not in the resolved file")
			continue
		}
		require.Contains(t, text, value, "%s has an effect", name)
	}
	for name := range exampleFile(t) {
		require.Contains(t, variables, name, "this test gives every variable another value")
	}
}
