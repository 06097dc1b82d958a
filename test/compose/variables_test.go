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

// variablesOf returns the variables that a file interpolates, before anything is resolved.
func variablesOf(t *testing.T, file string) map[string]template.Variable {
	t.Helper()
	text := strings.ReplaceAll(readFile(t, file), "!reset", "")
	var document map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	return template.ExtractVariables(document, nil)
}

func TestVariables_AreInExampleWithTheirDefaults(t *testing.T) {
	t.Parallel()
	documented, used := exampleFile(t), map[string]bool{}
	for _, file := range []string{composeFile, hostNetworkFile, publishFile} {
		for name, variable := range variablesOf(t, file) {
			used[name] = true
			value, ok := documented[name]
			require.True(t, ok, "%s uses %s, which .env.example does not contain", file, name)
			require.Equal(t, variable.DefaultValue, value, "the default of %s in %s must equal the one in .env.example",
				name, file)
		}
	}
	for _, secret := range load(t, example(t), composeFile).Secrets {
		require.NotEmpty(t, secret.Environment, "a secret must come from the environment")
		used[secret.Environment] = true
		require.Contains(t, documented, secret.Environment)
	}
	for name := range documented {
		require.True(t, used[name], ".env.example contains %s, which is not used", name)
	}
}

// bareVariable matches a variable without default or error, which would become an empty string with only a warning.
var bareVariable = regexp.MustCompile(`(^|[^$])\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_])`)

func TestVariables_AreNeverSilentlyEmpty(t *testing.T) {
	t.Parallel()
	require.Regexp(t, bareVariable, "a: ${NAME}", "the pattern must match a bare variable")
	require.Regexp(t, bareVariable, "a: $NAME", "the pattern must match a bare variable")
	for _, file := range []string{composeFile, hostNetworkFile, publishFile} {
		for n, line := range strings.Split(readFile(t, file), "\n") {
			require.NotRegexp(t, bareVariable, line, "%s:%d: give the variable a default, or an error with :?", file,
				n+1)
		}
	}
}

func TestVariables_WithoutDefaultAreRequired(t *testing.T) {
	t.Parallel()
	_, err := tryLoad(t, without(example(t), "SLIPWAY_KUBECONFIG"), composeFile)
	require.ErrorContains(t, err, "name the kubeconfig of the home cluster",
		"a missing kubeconfig must be refused with a helpful message")

	_, err = tryLoad(t, exampleFile(t), composeFile)
	require.ErrorContains(t, err, "name the kubeconfig of the home cluster",
		"an unchanged copy of .env.example must be refused")

	complete := example(t)
	_, err = tryLoad(t, without(complete, "SLIPWAY_API_TOKEN_FILE"), composeFile)
	require.ErrorContains(t, err, "name the file of the token of the HTTP API", "a missing API token must be refused")
	three := map[string]string{"SLIPWAY_KUBECONFIG": complete["SLIPWAY_KUBECONFIG"],
		"POSTGRES_PASSWORD":      complete["POSTGRES_PASSWORD"],
		"SLIPWAY_API_TOKEN_FILE": complete["SLIPWAY_API_TOKEN_FILE"]}
	require.Equal(t, resolved(t, load(t, complete, composeFile)), resolved(t, load(t, three, composeFile)),
		"the three variables without default must be enough")
}

// resolved returns the file as `docker compose config` shows it.
func resolved(t *testing.T, project *types.Project) string {
	t.Helper()
	text, err := project.MarshalYAML()
	require.NoError(t, err)
	return string(text)
}

// TestVariables_TakeEffect gives each variable another value, which must appear in the resolved file.
func TestVariables_TakeEffect(t *testing.T) {
	t.Parallel()
	variables := map[string]string{
		"SLIPWAY_KUBECONFIG": "/home/me/kubeconfig", "POSTGRES_PASSWORD": "other", "SLIPWAY_UID": "1234",
		"SLIPWAY_GID": "2345", "SLIPWAY_CONTEXT": "prod",
		"SLIPWAY_NAMESPACE": "releases", "SLIPWAY_INSTALL_CRDS": "false", "SLIPWAY_LOG_LEVEL": "debug",
		"SLIPWAY_VERSION": "v9.8.7", "SLIPWAY_PORT": "18080",
		"TEMPORAL_PORT": "17233", "TEMPORAL_UI_PORT": "18233", "SLIPWAY_WORKER_PORT": "19090",
		"TEMPORAL_UI_UPSTREAM_PORT": "18234",
		"TEMPORAL_NAMESPACE":        "shop", "TEMPORAL_RETENTION_DAYS": "77",
		"SLIPWAY_API_TOKEN_FILE": "/home/me/token-of-the-api", "SLIPWAY_ALLOWED_HOSTS": "slipway.example",
		"SLIPWAY_TRUSTED_PROXIES": "10.9.8.0/24",
		"TEMPORAL_LOG_LEVEL":      "error", "GOPROXY": "https://modules.example",
	}
	text := ""
	for _, files := range setups {
		text += resolved(t, load(t, variables, files...))
	}
	for name, value := range variables {
		if name == "POSTGRES_PASSWORD" {
			require.NotContains(t, text, value, "a password must not be in the resolved file")
			continue
		}
		require.Contains(t, text, value, "%s must have an effect", name)
	}
	for name := range exampleFile(t) {
		require.Contains(t, variables, name, "this test must cover every variable")
	}
}
