package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// jsonReader converts JSON to YAML nodes with their lines.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// offset and line are how far lines have been counted.
	offset int64
	line   int
}

// jsonBegin matches the beginning of JSON that hardly any YAML has.
var jsonBegin = regexp.MustCompile(`^\s*(\{\s*"|\[\s*[\[{"])`)

func looksLikeJSON(data []byte) bool { return jsonBegin.Match(data) }

// jsonError returns the first syntax error of a text that looks like JSON, with its line.
func jsonError(data []byte) *FieldError {
	line, message := 1, "is neither valid JSON nor YAML"
	var syntax *json.SyntaxError
	if err := json.Unmarshal(data, new(any)); errors.As(err, &syntax) {
		line += bytes.Count(data[:syntax.Offset], []byte("\n"))
		message = "is not valid JSON: " + syntax.Error()
	}
	return &FieldError{Line: line, Reason: message}
}

// parseJSON reads a text that is known to be valid JSON.
func parseJSON(data []byte) (*yaml.Node, *FieldError) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.decoder.UseNumber()
	root, err := r.node()
	if err != nil {
		return nil, &FieldError{Line: r.line, Reason: "is not valid JSON: " + err.Error()}
	}
	if root.Tag == nullTag {
		return nil, &FieldError{Line: 1, Reason: "is empty"}
	}
	return root, nil
}

func (r *jsonReader) node() (*yaml.Node, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	line := r.tokenLine()
	delimiter, ok := token.(json.Delim)
	if !ok {
		return jsonScalar(token, line), nil
	}
	node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: line}
	if delimiter == '[' {
		node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
	}
	// An object's tokens are key, value, key, value: the same order as a mapping node's content.
	for r.decoder.More() {
		child, err := r.node()
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, child)
	}
	_, err = r.decoder.Token() // the closing bracket
	return node, err
}

// tokenLine returns the line of the token just read. A JSON string contains no line break, so a token ends on the line
// where it begins.
func (r *jsonReader) tokenLine() int {
	end := r.decoder.InputOffset()
	r.line += bytes.Count(r.data[r.offset:end], []byte("\n"))
	r.offset = end
	return r.line
}

func jsonScalar(token json.Token, line int) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: line}
	switch value := token.(type) {
	case string:
		node.Tag, node.Value, node.Style = stringTag, value, yaml.DoubleQuotedStyle
	case json.Number:
		node.Tag, node.Value = integerTag, value.String()
		if strings.ContainsAny(node.Value, ".eE") {
			node.Tag = floatTag
		}
	case bool:
		node.Tag, node.Value = booleanTag, "false"
		if value {
			node.Value = "true"
		}
	default:
		node.Tag, node.Value = nullTag, "null"
	}
	return node
}
