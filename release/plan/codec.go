package plan

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

// The document's keys that validation messages name.
const (
	keyComment           = "comment"
	keyItems             = "deployPlanItems"
	keyServiceID         = "serviceId"
	keyPriority          = "priority"
	keyDeployment        = "deployment"
	keyExecMethod        = "containerExecMethod"
	keyDeployLabel       = "deployLabel"
	keyHTTPSrcURI        = source.KeyPackage
	keyCompileRepoPath   = source.KeyRepository
	keyCompileRepoBranch = "compileRepoBranch"
	keyRestoreTask       = "restoreTask"
	keyRestoreItem       = "restoreItem"
)

// Decode reads a plan from YAML or JSON, strictly, with all errors at once. If there are errors, the Document is
// meaningless.
func Decode(data []byte) (Document, []Warning, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Document{}, nil, found.Sorted()
	}
	d := decodeDocument(root)
	warnings := d.check(found)
	return d, warnings, found.Sorted()
}

func decodeDocument(v strictyaml.Value) Document {
	m := v.Mapping(append([]string{keyComment, keyItems}, window.Keys...)...)
	d := Document{Comment: m.Field(keyComment).FreeText(), Times: window.Read(m)}
	for i, entry := range m.Field(keyItems).List() {
		d.Items = append(d.Items, decodeItem(entry.OfItem(i+1)))
	}
	return d
}

func decodeItem(v strictyaml.Value) Item {
	m := v.Mapping(keyServiceID, keyPriority, keyDeployment, keyExecMethod, keyDeployLabel,
		keyHTTPSrcURI, keyCompileRepoPath, keyCompileRepoBranch, keyRestoreTask, keyRestoreItem)
	return Item{
		ServiceID:           ServiceID(m.Field(keyServiceID).Name()),
		Priority:            m.Field(keyPriority).Integer(math.MinInt64, math.MaxInt64),
		Deployment:          Operation(m.Field(keyDeployment).Text()),
		ContainerExecMethod: Method(m.Field(keyExecMethod).Text()),
		DeployLabel:         m.Field(keyDeployLabel).Text(),
		HTTPSrcURI:          m.Field(keyHTTPSrcURI).Text(),
		CompileRepoPath:     m.Field(keyCompileRepoPath).Text(),
		CompileRepoBranch:   m.Field(keyCompileRepoBranch).Text(),
		RestoreTask:         m.Field(keyRestoreTask).Text(),
		RestoreItem:         m.Field(keyRestoreItem).Integer(1, maxItems),
	}
}

// Warning is a note on something that is legal in a plan but probably not intended.
type Warning = strictyaml.FieldError

// Encode writes a plan as YAML with its keys in the usual order; Decode reads it back. It fails if a text is not UTF-8.
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
	root.Content = append(root.Content, d.TimesNodes()...)
	addNode(root, keyItems, items)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(root)
	if err == nil {
		err = encoder.Close()
	}
	return out.Bytes(), err
}

func itemNode(item Item) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	addNode(node, keyServiceID, serviceIDNode(item.ServiceID))
	addNode(node, keyPriority, numberNode(item.Priority))
	addText(node, keyDeployment, string(item.Deployment))
	addText(node, keyExecMethod, string(item.ContainerExecMethod))
	addText(node, keyDeployLabel, item.DeployLabel)
	addText(node, keyHTTPSrcURI, item.HTTPSrcURI)
	addText(node, keyCompileRepoPath, item.CompileRepoPath)
	addText(node, keyCompileRepoBranch, item.CompileRepoBranch)
	addText(node, keyRestoreTask, item.RestoreTask)
	if item.RestoreItem != 0 {
		addNode(node, keyRestoreItem, numberNode(item.RestoreItem))
	}
	return node
}

func numberNode(n int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(n, 10)}
}

// plainID matches IDs that every YAML and JSON parser reads as the same number: they need no quotes.
var plainID = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)

func serviceIDNode(id ServiceID) *yaml.Node {
	if plainID.MatchString(string(id)) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: string(id)}
	}
	return textNode(string(id))
}

// addText adds a key with a text; it omits an empty text, since absent and empty are equivalent.
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
	// Other styles lose carriage returns, leading and trailing blanks, and invisible characters.
	if strings.TrimSpace(value) != value || strings.ContainsFunc(value, func(r rune) bool {
		return !unicode.IsPrint(r)
	}) {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}
