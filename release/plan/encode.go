package plan

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Encode writes a plan as YAML with its keys in the order of the source document, so that Decode reads the same plan again.
// It fails when a text of the plan is not UTF-8.
func Encode(d Document) ([]byte, error) {
	items := &yaml.Node{Kind: yaml.SequenceNode}
	for _, item := range d.Items {
		items.Content = append(items.Content, itemNode(item))
	}
	if len(items.Content) == 0 {
		items.Style = yaml.FlowStyle // an empty list has no other form
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	addText(root, keyComment, d.Comment)
	addNode(root, keyItems, items)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func itemNode(item Item) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	addNode(node, keyServiceID, serviceIDNode(item.ServiceID))
	addNode(node, keyPriority, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(item.Priority, 10)})
	addText(node, keyDeployment, string(item.Deployment))
	addText(node, keyExecMethod, string(item.ContainerExecMethod))
	addText(node, keyDeployLabel, item.DeployLabel)
	addText(node, keyHTTPSrcURI, item.HTTPSrcURI)
	addText(node, keyCompileRepoPath, item.CompileRepoPath)
	addText(node, keyCompileRepoBranch, item.CompileRepoBranch)
	return node
}

// plainID is an ID that every reader of YAML and JSON takes for the same number: it may stand without quotes, as people write it.
var plainID = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)

func serviceIDNode(id ServiceID) *yaml.Node {
	if plainID.MatchString(string(id)) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: string(id)}
	}
	return textNode(string(id))
}

// addText leaves out a key without a value: absent and empty are the same.
func addText(mapping *yaml.Node, key, value string) {
	if value != "" {
		addNode(mapping, key, textNode(value))
	}
}

func addNode(mapping *yaml.Node, key string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, textNode(key), value)
}

func textNode(value string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	// Other styles lose line ends of other systems, blanks at the edges and invisible characters.
	if strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}
