package compose

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The long tests run programs that are built from deploy/compose/programs in the place of the images: they have to be the same versions,
// and the local stack, which everything else is tested on, is of the same make.
func TestImagesAndTestedProgramsAreTheSameVersions(t *testing.T) {
	t.Parallel()
	project := load(t, example(t), composeFile)
	server, ui := tag(t, project.Services["temporal"].Image), tag(t, project.Services["temporal-ui"].Image)
	require.Equal(t, server, tag(t, project.Services["temporal-schema"].Image), "the schema is that of the server")
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

// required is the version of a module that a go.mod requires.
func required(t *testing.T, file, module string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(readFile(t, file))
	require.NotNil(t, found, "%s requires %s", file, module)
	return found[1]
}
