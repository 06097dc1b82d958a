package compose

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/programs"
)

// container runs on this machine what a service of the compose file runs in a container: its entry point, command,
// environment and health check, with the container's paths and addresses replaced. Everything else stays as in the
// file.
type container struct {
	service types.ServiceConfig
	// paths replace paths of the container in every argument and value.
	paths map[string]string
	// values replace the values of single variables.
	values map[string]string
	// checks replace substrings in the arguments of the health check.
	checks map[string]string
	// path is the folder of the image's programs.
	path string
	// prefix precedes the command, for an image whose own start script cannot run here.
	prefix []string
}

func newContainer(t *testing.T, service types.ServiceConfig, project *types.Project) *container {
	t.Helper()
	c := &container{service: service, paths: map[string]string{}, values: map[string]string{},
		checks: map[string]string{}}
	for _, config := range service.Configs {
		c.paths[config.Target] = project.Configs[config.Source].File
	}
	for _, volume := range service.Volumes {
		c.paths[volume.Target] = volume.Source
	}
	return c
}

// replace gives a variable another value. The file's value must be old.
func (c *container) replace(old, value, variable string) {
	if has := c.service.Environment[variable]; has == nil || *has != old {
		panic("the file's value of " + variable + " is not " + old)
	}
	c.values[variable] = value
}

// add sets a variable that the file leaves to the image.
func (c *container) add(variable, value string) {
	if c.service.Environment[variable] != nil {
		panic("the file has a value for " + variable)
	}
	c.values[variable] = value
}

// secret sets the local file that holds the password.
func (c *container) secret(file string) {
	c.paths["/run/secrets/"+c.service.Secrets[0].Source] = file
}

func (c *container) translate(word string) string {
	if other, ok := c.paths[word]; ok {
		return other
	}
	return word
}

func (c *container) environment() []string {
	// Of the machine's environment, pass only what programs need to run at all.
	env := []string{"PATH=" + c.path + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	for variable, value := range c.service.Environment {
		if _, replaced := c.values[variable]; !replaced {
			env = append(env, variable+"="+c.translate(*value))
		}
	}
	for variable, value := range c.values {
		env = append(env, variable+"="+value)
	}
	return env
}

func (c *container) words() []string {
	words := slices.Concat(c.prefix, c.service.Entrypoint, c.service.Command)
	for n, word := range words {
		words[n] = c.translate(word)
	}
	return words
}

func (c *container) command(ctx context.Context) *exec.Cmd {
	words := c.words()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Env = c.environment()
	return command
}

// runJob runs a job, which must succeed, and returns its output.
func (c *container) runJob(t *testing.T) string {
	t.Helper()
	c.path = programs.Folder(t, "compose")
	ctx, cancel := context.WithTimeout(t.Context(), jobTimeout)
	defer cancel()
	out, err := c.command(ctx).CombinedOutput()
	require.NoError(t, err, "%s: %s", c.service.Name, out)
	return string(out)
}

// healthy reports whether the file's health check of the service succeeds.
func (c *container) healthy() bool {
	var words []string
	for _, word := range c.service.HealthCheck.Test[1:] {
		for old, other := range c.checks {
			word = strings.ReplaceAll(word, old, other)
		}
		words = append(words, c.translate(word))
	}
	check := exec.Command(words[0], words[1:]...)
	check.Env = c.environment()
	return check.Run() == nil
}

// start runs a service until the test ends.
func (c *container) start(t *testing.T) *harness.Process {
	t.Helper()
	words := c.words()
	program, err := exec.LookPath(words[0])
	require.NoError(t, err)
	return harness.Run(t, program, words[1:], c.environment())
}
