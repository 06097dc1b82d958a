package compose

import (
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ignored returns the patterns of .dockerignore: plain ones match at the top, those that begin with **/ in every
// folder.
func ignored(t testing.TB) []string {
	t.Helper()
	var patterns []string
	for line := range strings.Lines(readFile(t, ".dockerignore")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		require.False(t, strings.HasPrefix(line, "!"), "exceptions are not supported: %s", line)
		patterns = append(patterns, line)
	}
	return patterns
}

func isIgnored(patterns []string, name string) bool {
	for _, pattern := range patterns {
		subject := name
		if rest, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
			pattern, subject = rest, path.Base(name)
		}
		if match, err := path.Match(pattern, subject); err == nil && match {
			return true
		}
	}
	return false
}

// copyContext copies the build context, which Docker would send to the builder.
func copyContext(t *testing.T) string {
	t.Helper()
	from, to, patterns := root(t), t.TempDir(), ignored(t)
	require.NoError(t, filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			// Other tests create and delete files meanwhile, but none that the image needs.
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		name, err := filepath.Rel(from, file)
		if err != nil || name == "." {
			return err
		}
		if isIgnored(patterns, filepath.ToSlash(name)) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		target := filepath.Join(to, name)
		if entry.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		return copyFile(file, target)
	}))
	return to
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Close()
}

func TestDockerignore_ExcludesFilesTheImageDoesNotNeed(t *testing.T) {
	t.Parallel()
	patterns := ignored(t)
	for name, reason := range map[string]string{
		".dev":                      "the local stack's binaries and database are large",
		".git":                      "the history is large, and any commit would rebuild everything",
		".env":                      "it contains a password",
		".env.example":              "it changes nothing in the image",
		"kubeconfig":                "it contains credentials",
		"api-token":                 "it is a credential",
		"docker-compose.yml":        "a change of the stack must not rebuild the image",
		"docs":                      "a change of the documentation must not rebuild the image",
		"README.md":                 "a change of the documentation must not rebuild the image",
		"test":                      "tests are not part of the program",
		"release/plan/plan_test.go": "tests are not part of the program",
		"workflows/testdata":        "tests are not part of the program",
		"deploy/dev":                "the local stack is not part of the program",
		"deploy/compose":            "a change of the stack must not rebuild the image",
	} {
		require.True(t, isIgnored(patterns, name), "%s: %s", name, reason)
	}
	for _, name := range []string{"go.mod", "go.sum", "LICENSE", "cmd", "cmd/slipway/main.go", "deploy", "deploy/crds",
		"deploy/image/licences.sh", "api/docs.html", "release", "release/plan"} {
		require.False(t, isIgnored(patterns, name), "%s is part of the program", name)
	}
}
