package manifest

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/api/client"
)

// Locate adds to findings without a line the line on which their field stands in the document that was sent. What the catalogue says against
// a plan has a field and no line, since the catalogue does not see the text.
func Locate(body []byte, problems []client.FieldProblem) []client.FieldProblem {
	var root yaml.Node
	if yaml.Unmarshal(body, &root) != nil || len(root.Content) == 0 {
		return problems
	}
	for n := range problems {
		if problems[n].Line == 0 && problems[n].Field != "" {
			problems[n].Line = lineOf(root.Content[0], problems[n].Field)
		}
	}
	return problems
}

// lineOf is the line of a field such as "deployPlanItems[2].serviceId", or of what it would stand in when it is absent.
func lineOf(node *yaml.Node, field string) int {
	line := node.Line
	for part := range strings.SplitSeq(strings.ReplaceAll(field, "[", ".["), ".") {
		next := entryOf(node, part)
		if next == nil {
			return line
		}
		node, line = next, next.Line
	}
	return line
}

// entryOf is what stands in the node under a key, or under an index such as "[2]"; nil when nothing does.
func entryOf(node *yaml.Node, part string) *yaml.Node {
	if index, ok := strings.CutPrefix(part, "["); ok && node.Kind == yaml.SequenceNode {
		n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || n < 0 || n >= len(node.Content) {
			return nil
		}
		return node.Content[n]
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	return valueOf(node, part)
}
