package settings

import (
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/strictyaml"
)

// fileValue is a value of the configuration file.
type fileValue struct {
	text string
	line int
}

// readFile reads the configuration file strictly: a mapping of setting names to values, each known and given once.
// Every problem is returned, each with its line.
func readFile(path string) (map[string]fileValue, []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("the configuration file cannot be read: %w", err)}
	}
	documents := strictyaml.Split(text)
	switch {
	case len(documents) == 0:
		return nil, nil
	case len(documents) > 1:
		return nil, []error{fmt.Errorf("%s: holds more than one document: want one", path)}
	}
	var document yaml.Node
	if err := yaml.Unmarshal(documents[0], &document); err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	return readMapping(path, document.Content[0])
}

func readMapping(path string, node *yaml.Node) (map[string]fileValue, []error) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return nil, nil
	}
	if node.Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s:%d: want settings as `name: value`, one on each line", path, node.Line)}
	}
	values := map[string]fileValue{}
	var problems []error
	for n := 0; n+1 < len(node.Content); n += 2 {
		key, value := node.Content[n], node.Content[n+1]
		text, err := readEntry(key, value, values)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w", path, key.Line, err))
			continue
		}
		values[key.Value] = fileValue{text: text, line: key.Line}
	}
	return values, problems
}

func readEntry(key, value *yaml.Node, seen map[string]fileValue) (string, error) {
	d, known := definitionOf(key.Value)
	if !known {
		return "", fmt.Errorf("unknown setting %q%s", key.Value, suggestion(key.Value))
	}
	if earlier, twice := seen[key.Value]; twice {
		return "", fmt.Errorf("%s is set a second time; the first time is on line %d", key.Value, earlier.line)
	}
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.Kind == yaml.SequenceNode && d.kind == kindList {
		return readList(key.Value, value)
	}
	if value.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("%s: want a single value of type %s", key.Value, d.kind)
	}
	if value.Tag == "!!null" {
		return "", fmt.Errorf("%s has no value: give one or remove the line", key.Value)
	}
	return value.Value, nil
}

func readList(name string, node *yaml.Node) (string, error) {
	var parts []string
	for _, part := range node.Content {
		if part.Kind != yaml.ScalarNode || part.Tag == "!!null" {
			return "", fmt.Errorf("%s: want a list of single values", name)
		}
		parts = append(parts, part.Value)
	}
	return strings.Join(parts, ","), nil
}

// suggestion names the setting that a misspelt one is closest to, when one is close enough to be meant.
func suggestion(name string) string {
	best, distance := "", len(name)/3+1
	for _, d := range definitions {
		if n := editDistance(strings.ReplaceAll(strings.ToLower(name), "_", "-"), d.name); n < distance {
			best, distance = d.name, n
		}
	}
	if best == "" {
		return "; `slipway config` lists them all"
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// editDistance is the number of letters to insert, remove or replace to make one word of the other.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
