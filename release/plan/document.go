// Package plan holds deployment plans: the document, its decoding and validation, its waves, the states of its
// execution and the report.
package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/window"
)

// Operation is what a plan item does to a service: its key `deployment` (source document, key `deployment`).
type Operation string

// The five operations of the source document, and Slipway's own.
const (
	Start            Operation = "START"
	Stop             Operation = "STOP"
	Restart          Operation = "RESTART"
	HTTPUploadDeploy Operation = "HTTP_UPLOAD_DEPLOY"
	CompileDeploy    Operation = "COMPILE_DEPLOY"
	// Restore reverses what a task changed on workloads.
	Restore Operation = "RESTORE"
)

// Deploys reports whether the operation deploys a new version of the service.
func (o Operation) Deploys() bool { return o == HTTPUploadDeploy || o == CompileDeploy }

// Method is how an operation changes the pods of a service: all at once or one by one. It is the item's key
// `containerExecMethod`.
type Method string

// The two methods of the source document; Parallel is the default.
const (
	Parallel   Method = "PARALLEL"
	Sequential Method = "SEQUENTIAL"
)

// ServiceID names a service of the catalogue. A document may spell it as a number; the spelling is kept ("0111" stays
// "0111").
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:Type=""
type ServiceID string

// Document is a deployment plan.
//
// +kubebuilder:object:generate=true
type Document struct {
	// Comment is for display only.
	Comment string `json:"comment,omitempty"`
	// Times are when its items may begin.
	window.Times `json:",inline"`
	// Items are what the plan does, one service each.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Items []Item `json:"deployPlanItems"`
}

// Item is what a plan does to one service.
//
// +kubebuilder:object:generate=true
type Item struct {
	// ServiceID is the catalogue entry that is released.
	ServiceID ServiceID `json:"serviceId"`
	// Priority orders the items: larger goes first, equal ones go together.
	Priority int64 `json:"priority,omitempty"`
	// Deployment is the operation.
	// +kubebuilder:validation:Enum=START;STOP;RESTART;HTTP_UPLOAD_DEPLOY;COMPILE_DEPLOY;RESTORE
	Deployment Operation `json:"deployment"`
	// ContainerExecMethod is how the service's pods are changed; absent: PARALLEL.
	// +kubebuilder:validation:Enum=PARALLEL;SEQUENTIAL
	ContainerExecMethod Method `json:"containerExecMethod,omitempty"`
	// DeployLabel restricts the operation to workloads with one of these labels, separated by commas; absent: all.
	DeployLabel string `json:"deployLabel,omitempty"`
	// HTTPSrcURI is the code package of HTTP_UPLOAD_DEPLOY.
	HTTPSrcURI string `json:"httpSrcUri,omitempty"`
	// CompileRepoPath is the Git repository of COMPILE_DEPLOY.
	CompileRepoPath string `json:"compileRepoPath,omitempty"`
	// CompileRepoBranch is the branch of COMPILE_DEPLOY.
	CompileRepoBranch string `json:"compileRepoBranch,omitempty"`
	// RestoreTask is the task whose changes of the service RESTORE reverses.
	RestoreTask string `json:"restoreTask,omitempty"`
	// RestoreItem is the item of that task whose changes are reversed, counted from 1; absent: all of its items of the
	// service.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	RestoreItem int64 `json:"restoreItem,omitempty"`
}

// MethodOrDefault returns the item's method, PARALLEL if it sets none.
func (i Item) MethodOrDefault() Method { return cmp.Or(i.ContainerExecMethod, Parallel) }

var jsonInteger = regexp.MustCompile(`^-?[0-9]+$`)

// UnmarshalJSON accepts a text, or an integer, whose spelling it keeps.
func (id *ServiceID) UnmarshalJSON(data []byte) error {
	if jsonInteger.Match(data) {
		*id = ServiceID(data)
		return nil
	}
	if json.Unmarshal(data, (*string)(id)) != nil { // null changes nothing; validation refuses an empty ID
		return fmt.Errorf("serviceId must be a whole number or text, not %s: if that is the name, put it in quotes", data)
	}
	return nil
}

// labels returns the item's labels: deployLabel split at commas, without blanks and empty labels. No valid label has a
// blank in it.
func (i Item) labels() []string {
	return strings.FieldsFunc(i.DeployLabel, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// selected returns the workloads that have one of the item's labels; without labels all of them.
func (i Item) selected(workloads []catalog.Workload) []catalog.Workload {
	wanted := i.labels()
	if len(wanted) == 0 {
		return workloads
	}
	return slices.DeleteFunc(slices.Clone(workloads), func(w catalog.Workload) bool {
		return !slices.ContainsFunc(w.Labels, func(label string) bool { return slices.Contains(wanted, label) })
	})
}

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
	items := m.Field(keyItems)
	if n := items.Len(); n > maxItems {
		items.CannotRead(tooManyItems, n, maxItems)
		return d
	}
	for i, entry := range items.List() {
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
