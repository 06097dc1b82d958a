package compose

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

func imageStages(t *testing.T) (build, final stage) {
	t.Helper()
	stages := parseDockerfile(t, readFile(t, "deploy/image/Dockerfile"))
	require.Len(t, stages, 2, "there must be a build stage and an image stage")
	return stages[0], stages[1]
}

func TestImage(t *testing.T) {
	t.Parallel()
	build, final := imageStages(t)

	require.Equal(t, "scratch", final.base, "the image must be based on scratch")
	require.Equal(t, []string{"--from=" + build.name + " /out/ /"}, final.all("COPY"),
		"the image must contain only files of the build")
	require.Empty(t, final.all("ADD"))
	require.Empty(t, final.all("RUN"), "the image has no shell for RUN")
	require.Len(t, final.all("USER"), 1)
	require.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, final.all("USER")[0],
		"the user must be numeric, so that Kubernetes can verify that it is not root")

	var entrypoint []string
	require.NoError(t, json.Unmarshal([]byte(final.all("ENTRYPOINT")[0]), &entrypoint),
		"the entry point must not need a shell")
	require.Equal(t, []string{binaryInImage}, entrypoint)
	labels := final.all("LABEL")[0]
	for _, label := range []string{"title", "description", "licenses", "version"} {
		require.Contains(t, labels, "org.opencontainers.image."+label+"=")
	}

	project := load(t, example(t), composeFile)
	exposed := strings.Fields(final.all("EXPOSE")[0])
	for name := range slipwayServices {
		require.Contains(t, exposed, listenPort(t, project.Services[name]),
			"%s must listen on a port that the image exposes", name)
	}
	for name := range slipwayServices {
		for argument := range project.Services[name].Build.Args {
			require.True(t, takesArgument(build, argument), "the build must accept the argument %s", argument)
		}
	}
}

func takesArgument(s stage, name string) bool {
	for _, declared := range s.all("ARG") {
		if before, _, _ := strings.Cut(declared, "="); before == name {
			return true
		}
	}
	return false
}

func TestImage_IsBuiltWithGoOfGoMod(t *testing.T) {
	t.Parallel()
	build, _ := imageStages(t)
	found := regexp.MustCompile(`^golang:(\d+\.\d+)\.(\d+)-[a-z]+$`).FindStringSubmatch(build.base)
	require.NotNil(t, found, "%s must name a version of Go and a distribution", build.base)
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))
	require.Equal(t, wanted[1], found[1], "the image must be built with the Go version of go.mod")
	require.Equal(t, []string{". ."}, build.all("COPY"), "the build must copy the whole context")
}

func TestImageScripts_AreValidAndUsed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root(t), "deploy/image/*.sh"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	dockerfile := readFile(t, "deploy/image/Dockerfile")
	for _, file := range files {
		out, err := exec.Command("sh", "-n", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&0o100, "%s must be executable", file)
		require.Contains(t, dockerfile, "deploy/image/"+filepath.Base(file), "the Dockerfile must run it")
	}
}

// TestLongImageBuild runs the build's own commands on the build context in a test folder and checks the resulting file
// system of the image.
func TestLongImageBuild(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	image := buildImage(t, "v9.8.7-test")
	program := filepath.Join(image, binaryInImage)

	requireStatic(t, program)
	out, err := exec.Command(program, "version").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "slipway v9.8.7-test ", "the version must be that of the build argument")
	content, err := os.ReadFile(program)
	require.NoError(t, err)
	require.False(t, bytes.Contains(content, []byte(root(t)+"/")), "the program must not contain the path of its build")

	files := map[string]fs.FileMode{}
	require.NoError(t, filepath.WalkDir(image, func(file string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		name := strings.TrimPrefix(file, image)
		if strings.HasPrefix(name, "/usr/share/licenses/slipway/") || entry.IsDir() && name != "/tmp" {
			return nil
		}
		info, err := entry.Info()
		require.NoError(t, err)
		files[name] = info.Mode()
		return nil
	}))
	require.Len(t, files, 5, "expected program, certificates, user, group and a folder for temporary files: %v", files)
	require.Equal(t, fs.FileMode(0o111), files[binaryInImage]&0o111,
		"any user of the container must be able to execute it")
	require.Equal(t, fs.ModeDir|fs.ModeSticky|0o777, files["/tmp"])
	for _, name := range []string{"/etc/passwd", "/etc/group", "/etc/ssl/certs/ca-certificates.crt"} {
		require.Equal(t, fs.FileMode(0o444), files[name]&0o444, name)
	}
	requireLicences(t, filepath.Join(image, "usr/share/licenses/slipway"))
	t.Logf("the program is %d MiB", len(content)>>20)
}

// buildImage runs the RUN instructions of the build and returns the folder that is copied into the image.
func buildImage(t *testing.T, version string) string {
	t.Helper()
	build, _ := imageStages(t)
	context, out := copyContext(t), t.TempDir()
	require.NotEmpty(t, build.all("RUN"))
	for _, command := range build.all("RUN") {
		var words []string
		for _, word := range strings.Fields(command) {
			if !strings.HasPrefix(word, "--mount=type=cache,") {
				words = append(words, word)
			}
		}
		script := strings.ReplaceAll(strings.Join(words, " "), "/out", out)
		run := exec.Command("sh", "-c", script)
		run.Dir = context
		run.Env = append(os.Environ(), "GOWORK=off", "VERSION="+version, "TARGETOS="+runtime.GOOS,
			"TARGETARCH="+runtime.GOARCH)
		output, err := run.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, output)
	}
	return out
}

func requireStatic(t *testing.T, program string) {
	t.Helper()
	file, err := elf.Open(program)
	require.NoError(t, err)
	defer file.Close()
	for _, part := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, part.Type, "the image has no dynamic loader")
		require.NotEqual(t, elf.PT_DYNAMIC, part.Type, "the image has no shared libraries")
	}
	require.Nil(t, file.Section(".symtab"), "it must be stripped")
	require.Nil(t, file.Section(".debug_info"), "it must be stripped")
}

func requireLicences(t *testing.T, folder string) {
	t.Helper()
	for _, name := range []string{"LICENSE", "go/LICENSE", "k8s.io/client-go/LICENSE", "go.temporal.io/sdk/LICENSE",
		"github.com/spf13/cobra/LICENSE.txt"} {
		require.FileExists(t, filepath.Join(folder, name))
	}
	own, err := os.ReadFile(filepath.Join(folder, "LICENSE"))
	require.NoError(t, err)
	require.Equal(t, readFile(t, "LICENSE"), string(own))
}

// TestServerAndWorker_ShareOneImage checks that the built services name one image, so that it is built once.
func TestServerAndWorker_ShareOneImage(t *testing.T) {
	t.Parallel()
	forEachSetup(t, func(t *testing.T, project *types.Project) {
		require.Equal(t, project.Services["slipway-server"].Image, project.Services["slipway-worker"].Image)
		require.Equal(t, project.Services["slipway-server"].Build, project.Services["slipway-worker"].Build)
	})
}
