package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// TestLongTemporalImages_ReadTheirVariables checks that each variable occurs in the source of the image's programs: an
// unknown one would be ignored silently.
func TestLongTemporalImages_ReadTheirVariables(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	project := load(t, example(t), composeFile)
	server, ui, own := moduleFolder(t, "go.temporal.io/server"), moduleFolder(t, "github.com/temporalio/ui-server/v2"),
		filepath.Join(root(t), "deploy/compose")
	for name, readers := range map[string][]string{
		"temporal": {
			server + "/common/config/config_template_embedded.yaml", server + "/common/config/loader.go",
			server + "/docker/scripts/sh/entrypoint.sh", own + "/with-password.sh",
		},
		"temporal-schema":    {server + "/tools/sql/main.go", own + "/setup-schema.sh", own + "/with-password.sh"},
		"temporal-namespace": {own + "/create-namespace.sh"},
		"temporal-ui":        {ui + "/config/docker.yaml"},
	} {
		var source []byte
		for _, file := range readers {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			source = append(source, text...)
		}
		for variable := range project.Services[name].Environment {
			require.Regexp(t, `\b`+regexp.QuoteMeta(variable)+`\b`, string(source), "%s does not read %s", name,
				variable)
		}
	}
}

// TestLongDynamicConfig_HasOnlyKnownKeys checks the keys of the dynamic configuration, since the server ignores unknown
// ones.
func TestLongDynamicConfig_HasOnlyKnownKeys(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	server := filepath.Join(programs.Folder(t, "compose"), "temporal-server")
	out, err := exec.Command(server, "validate-dynamic-config",
		filepath.Join(root(t), "deploy/compose/dynamic-config.yaml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "error:")
	require.NotContains(t, string(out), "warning:")

	unknown := writeFile(t, "frontend.noSuchKey:\n- value: 1\n")
	out, err = exec.Command(server, "validate-dynamic-config", unknown).CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), `unregistered key "frontend.nosuchkey"`, "the server must report an unknown key")
}
