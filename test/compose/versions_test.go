package compose

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImages_HaveVersionsOfTestedPrograms checks that the programs of deploy/compose/programs, which the long tests run
// instead of the images, have the versions of the images, and that the local stack, on which everything else is tested,
// has the same.
func TestImages_HaveVersionsOfTestedPrograms(t *testing.T) {
	t.Parallel()
	project := load(t, example(t), composeFile)
	server, ui := tag(t, project.Services["temporal"].Image), tag(t, project.Services["temporal-ui"].Image)
	require.Equal(t, server, tag(t, project.Services["temporal-schema"].Image),
		"the schema must have the version of the server")
	require.Equal(t, server, tag(t, project.Services["temporal-namespace"].Image))
	for _, module := range []string{"deploy/compose/programs/go.mod", "deploy/dev/temporal/go.mod"} {
		require.Equal(t, "v"+server, required(t, module, "go.temporal.io/server"), module)
		require.Equal(t, "v"+ui, required(t, module, "github.com/temporalio/ui-server/v2"), module)
	}
}

func tag(t *testing.T, image string) string {
	t.Helper()
	_, version, ok := strings.Cut(image, ":")
	require.True(t, ok, image)
	return version
}

// required returns the version of a module that a go.mod requires.
func required(t *testing.T, file, module string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(module) +
		` (v\S+)`).FindStringSubmatch(readFile(t, file))
	require.NotNil(t, found, "%s does not require %s", file, module)
	return found[1]
}
