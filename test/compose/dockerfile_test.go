package compose

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instruction is an instruction of a Dockerfile, with its continued lines joined.
type instruction struct {
	name, arguments string
}

// stage is a build stage, which begins with FROM.
type stage struct {
	base         string
	name         string
	instructions []instruction
}

// all returns the arguments of every instruction of that name.
func (s stage) all(name string) []string {
	var found []string
	for _, i := range s.instructions {
		if i.name == name {
			found = append(found, i.arguments)
		}
	}
	return found
}

// parseDockerfile parses the simple Dockerfiles of this repository: no heredocs, no other escape character, no
// variables in FROM.
func parseDockerfile(t *testing.T, text string) []stage {
	t.Helper()
	var stages []stage
	for _, line := range logicalLines(text) {
		name, arguments, _ := strings.Cut(line, " ")
		arguments = strings.TrimSpace(arguments)
		require.NotContains(t, arguments, "<<", "heredocs are not supported")
		if name == "FROM" {
			stages = append(stages, newStage(t, arguments))
			continue
		}
		require.NotEmpty(t, stages, "%s comes before FROM", name)
		last := &stages[len(stages)-1]
		last.instructions = append(last.instructions, instruction{name: name, arguments: arguments})
	}
	return stages
}

func newStage(t *testing.T, arguments string) stage {
	t.Helper()
	words := strings.Fields(arguments)
	if strings.HasPrefix(words[0], "--platform=") {
		words = words[1:]
	}
	s := stage{base: words[0]}
	if len(words) == 3 {
		require.Equal(t, "AS", words[1])
		s.name = words[2]
	}
	return s
}

func logicalLines(text string) []string {
	var lines []string
	continued := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if rest, more := strings.CutSuffix(line, `\`); more {
			continued += strings.TrimSpace(rest) + " "
			continue
		}
		lines = append(lines, continued+line)
		continued = ""
	}
	return lines
}
