package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"slipway.io/slipway/api/problem"
)

//go:embed docs.html
var docsTemplate string

// renderDocs is the API's description as one page that needs nothing from elsewhere.
func renderDocs(spec *openapi3.T) ([]byte, error) {
	page := template.New("docs").Funcs(template.FuncMap{"prose": prose, "typeOf": typeOf, "sample": sample})
	if _, err := page.Parse(docsTemplate); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := page.Execute(&out, docsPage{Info: spec.Info, Groups: docsGroups(spec), Schemas: docsSchemas(spec), Problems: docsProblems()})
	return out.Bytes(), err
}

type docsPage struct {
	Info     *openapi3.Info
	Groups   []docsGroup
	Schemas  []docsSchema
	Problems []docsProblem
}

// docsGroup are the operations of one tag.
type docsGroup struct {
	Name, Description string
	Operations        []docsOperation
}

type docsOperation struct {
	Method, Path string
	*openapi3.Operation
	Fields    []*openapi3.Parameter
	Body      *docsContent
	Responses []docsResponse
}

type docsResponse struct {
	Status, Description string
	Content             docsContent
}

// docsContent is a body: the types that it may have, and its schema.
type docsContent struct {
	Types  []string
	Schema *openapi3.SchemaRef
}

type docsSchema struct {
	Name   string
	Schema *openapi3.Schema
	Fields []docsField
}

type docsField struct {
	Name     string
	Required bool
	Schema   *openapi3.SchemaRef
}

type docsProblem struct {
	Name, Title, Advice string
	Status              int
}

// methodOrder is the order of the operations on one path.
var methodOrder = []string{"GET", "PUT", "POST", "DELETE"}

func docsGroups(spec *openapi3.T) []docsGroup {
	groups := make([]docsGroup, len(spec.Tags))
	for i, tag := range spec.Tags {
		groups[i] = docsGroup{Name: tag.Name, Description: tag.Description}
	}
	for _, path := range spec.Paths.InMatchingOrder() {
		item := spec.Paths.Value(path)
		for _, method := range methodOrder {
			operation := item.GetOperation(method)
			if operation == nil {
				continue
			}
			for i := range groups {
				if slices.Contains(operation.Tags, groups[i].Name) {
					groups[i].Operations = append(groups[i].Operations, docsOperationOf(method, path, item, operation))
				}
			}
		}
	}
	for _, group := range groups {
		slices.SortStableFunc(group.Operations, func(a, b docsOperation) int { return strings.Compare(a.Path, b.Path) })
	}
	return groups
}

func docsOperationOf(method, path string, item *openapi3.PathItem, operation *openapi3.Operation) docsOperation {
	one := docsOperation{Method: method, Path: path, Operation: operation}
	for _, parameter := range slices.Concat(item.Parameters, operation.Parameters) {
		one.Fields = append(one.Fields, parameter.Value)
	}
	if operation.RequestBody != nil {
		content := docsContentOf(operation.RequestBody.Value.Content)
		one.Body = &content
	}
	answers := operation.Responses.Map()
	for _, status := range sortedKeys(answers) {
		response := answers[status].Value
		one.Responses = append(one.Responses, docsResponse{Status: status, Description: deref(response.Description),
			Content: docsContentOf(response.Content)})
	}
	return one
}

func docsContentOf(content openapi3.Content) docsContent {
	var one docsContent
	for _, name := range sortedKeys(content) {
		one.Types = append(one.Types, name)
		if one.Schema == nil {
			one.Schema = content[name].Schema
		}
	}
	return one
}

func docsSchemas(spec *openapi3.T) []docsSchema {
	var schemas []docsSchema
	for _, name := range sortedKeys(spec.Components.Schemas) {
		schema := spec.Components.Schemas[name].Value
		one := docsSchema{Name: name, Schema: schema}
		for _, part := range append(openapi3.SchemaRefs{{Value: schema}}, schema.AllOf...) {
			if part.Ref != "" {
				continue // its fields are in a section of their own
			}
			for _, field := range sortedKeys(part.Value.Properties) {
				one.Fields = append(one.Fields, docsField{Name: field, Required: slices.Contains(part.Value.Required, field),
					Schema: part.Value.Properties[field]})
			}
		}
		slices.SortStableFunc(one.Fields, func(a, b docsField) int { return requiredFirst(a.Required, b.Required) })
		schemas = append(schemas, one)
	}
	return schemas
}

func requiredFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func docsProblems() []docsProblem {
	var problems []docsProblem
	for _, kind := range problem.Kinds() {
		problems = append(problems, docsProblem{Name: kind.Name, Title: kind.Title, Advice: kind.Advice, Status: kind.Status})
	}
	return problems
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

var (
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	boldSpan  = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	paragraph = regexp.MustCompile(`\n\s*\n`)
)

// prose is a description's Markdown as far as the descriptions use it: paragraphs, code and bold.
func prose(text string) template.HTML {
	var out strings.Builder
	for _, part := range paragraph.Split(strings.TrimSpace(text), -1) {
		part = template.HTMLEscapeString(part)
		part = codeSpan.ReplaceAllString(part, "<code>$1</code>")
		part = boldSpan.ReplaceAllString(part, "<strong>$1</strong>")
		fmt.Fprintf(&out, "<p>%s</p>", part)
	}
	return template.HTML(out.String()) //nolint:gosec // the text is our own, and escaped above
}

// typeOf names a schema's type, with a link where it has a section of its own.
func typeOf(ref *openapi3.SchemaRef) template.HTML {
	if ref == nil {
		return ""
	}
	if name := ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]; name != "" {
		return template.HTML(fmt.Sprintf(`<a href="#schema-%s">%s</a>`, name, name)) //nolint:gosec // a name of our own description
	}
	schema := ref.Value
	switch {
	case schema.Type.Is(openapi3.TypeArray):
		return "list of " + typeOf(schema.Items)
	case len(schema.OneOf) > 0:
		parts := make([]string, len(schema.OneOf))
		for i, one := range schema.OneOf {
			parts[i] = string(typeOf(one))
		}
		return template.HTML(strings.Join(parts, " or ")) //nolint:gosec // made of the cases above
	case schema.Type == nil:
		return "anything"
	}
	text := strings.Join(schema.Type.Slice(), " or ")
	if schema.Format != "" {
		text += " (" + schema.Format + ")"
	}
	if len(schema.Enum) > 0 {
		text = "one of " + strings.Trim(strings.ReplaceAll(fmt.Sprint(schema.Enum), " ", ", "), "[]")
	}
	return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // escaped
}

// sample is an example as indented JSON, "" when there is none.
func sample(value any) string {
	if value == nil {
		return ""
	}
	if text, ok := value.(string); ok {
		return text
	}
	out, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return ""
	}
	return string(out)
}
