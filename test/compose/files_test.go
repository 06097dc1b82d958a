package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestMountedFiles_ExistAndAreValid(t *testing.T) {
	t.Parallel()
	project := load(t, example(t), composeFile)
	mounted := map[string]bool{}
	for name, config := range project.Configs {
		require.FileExists(t, config.File, name)
		mounted[filepath.Base(config.File)] = true
		info, err := os.Stat(config.File)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o444), info.Mode()&0o444, "%s: the container's user does not own the file", name)
		switch filepath.Ext(config.File) {
		case ".sh":
			out, err := exec.Command("sh", "-n", config.File).CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
		case ".yaml":
			requireDynamicConfig(t, config.File)
		default:
			require.Failf(t, "no check for this kind of file", "%s: %s", name, config.File)
		}
	}
	for _, pattern := range []string{"*.sh", "*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root(t), "deploy/compose", pattern))
		require.NoError(t, err)
		for _, file := range files {
			require.True(t, mounted[filepath.Base(file)], "%s is not mounted", file)
		}
	}
}

// requireDynamicConfig checks the form of Temporal's dynamic configuration. The long tests let the server check the
// keys.
func requireDynamicConfig(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var keys map[string][]struct {
		Value       any            `yaml:"value"`
		Constraints map[string]any `yaml:"constraints"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&keys))
	require.NotEmpty(t, keys)
	for key, values := range keys {
		require.NotEmpty(t, values, key)
		require.NotNil(t, values[0].Value, key)
	}
}

var mountPath = regexp.MustCompile(`^/slipway/[a-z.-]+$`)

// TestMountedFiles_MatchPathsInContainers checks that each container has exactly those files mounted whose paths it
// names.
func TestMountedFiles_MatchPathsInContainers(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		for name, service := range project.Services {
			words := append(slices.Clone(service.Entrypoint), service.Command...)
			for _, value := range service.Environment {
				words = append(words, *value)
			}
			var named, targets []string
			for _, word := range words {
				named = append(named, mountPath.FindAllString(word, -1)...)
			}
			for _, config := range service.Configs {
				require.Contains(t, project.Configs, config.Source, name)
				targets = append(targets, config.Target)
			}
			require.ElementsMatch(t, named, targets, name)
		}
	})
}
