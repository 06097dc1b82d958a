package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"slipway.io/slipway/api/problem"
)

//go:embed docs.html
var docsTemplate string

// docsPage is the data of the documentation template: the API description and the problem kinds.
type docsPage struct {
	*openapi3.T
	Problems []problem.Kind
}

// renderDocs renders the API description as one self-contained HTML page.
func renderDocs(spec *openapi3.T) ([]byte, error) {
	page := docsPage{spec, problem.Kinds()}
	text := template.New("docs").Funcs(template.FuncMap{"prose": prose, "typeOf": typeOf, "sample": sample,
		"types": mediaTypes, "schemaOf": schemaOf, "operations": page.operations, "fields": docsFields})
	if _, err := text.Parse(docsTemplate); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := text.Execute(&out, page)
	return out.Bytes(), err
}

type docsOperation struct {
	Method, Path string
	*openapi3.Operation
	// Fields are the parameters of the operation and of its path.
	Fields openapi3.Parameters
}

// operations returns the operations with the tag, sorted by path and method.
func (p docsPage) operations(tag string) (tagged []docsOperation) {
	for _, path := range slices.Sorted(maps.Keys(p.Paths.Map())) {
		item := p.Paths.Value(path)
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
			if operation := item.GetOperation(method); operation != nil && slices.Contains(operation.Tags, tag) {
				tagged = append(tagged, docsOperation{method, path, operation,
					slices.Concat(item.Parameters, operation.Parameters)})
			}
		}
	}
	return tagged
}

func mediaTypes(content openapi3.Content) []string { return slices.Sorted(maps.Keys(content)) }

// schemaOf returns the schema of a body, from its first media type; nil if there is no body.
func schemaOf(content openapi3.Content) *openapi3.SchemaRef {
	for _, name := range mediaTypes(content) {
		return content[name].Schema
	}
	return nil
}

type docsField struct {
	Name     string
	Required bool
	Schema   *openapi3.SchemaRef
}

// docsFields returns the fields of a schema, the required ones first.
func docsFields(schema *openapi3.Schema) (fields []docsField) {
	var optional []docsField
	for _, part := range append(openapi3.SchemaRefs{{Value: schema}}, schema.AllOf...) {
		if part.Ref != "" {
			continue // documented in its own section
		}
		for _, name := range slices.Sorted(maps.Keys(part.Value.Properties)) {
			if slices.Contains(part.Value.Required, name) {
				fields = append(fields, docsField{name, true, part.Value.Properties[name]})
			} else {
				optional = append(optional, docsField{name, false, part.Value.Properties[name]})
			}
		}
	}
	return append(fields, optional...)
}

var (
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	boldSpan  = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	paragraph = regexp.MustCompile(`\n\s*\n`)
)

// prose renders the Markdown subset used by descriptions: paragraphs, code and bold.
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

// typeOf returns the name of a schema's type, with a link to its section if it has one.
func typeOf(ref *openapi3.SchemaRef) template.HTML {
	if ref == nil {
		return ""
	}
	if name := ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]; name != "" {
		//nolint:gosec // a name of our own description
		return template.HTML(fmt.Sprintf(`<a href="#schema-%s">%s</a>`, name, name))
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

// sample returns an example as indented JSON; "" if there is none.
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
