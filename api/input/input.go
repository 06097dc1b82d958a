// Package input reads what requests have in common: bodies, small forms, keys and the header that names the front door.
package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/workflows"
)

// The longest texts that are recorded, in characters; a key of a start.
const (
	MaxActor  = workflows.MaxActor
	MaxReason = workflows.MaxReason
	MaxKey    = 255
)

// FrontDoor is what the caller says it is.
func FrontDoor(via *schema.Via) (string, error) {
	if via == nil {
		return string(schema.FrontDoorHTTP), nil
	}
	if !via.Valid() {
		return "", problem.Malformed.Because("the header Slipway-Via is %q: give http, cli or console, or leave it out", *via)
	}
	return string(*via), nil
}

// Text is the text of a parameter; "" when it is left out.
func Text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Key is the key of a request, which may stand in its body or in its header.
func Key(inBody string, header *string) (string, error) {
	key := Text(header)
	switch {
	case header != nil && (key == "" || len(key) > MaxKey):
		return "", problem.Malformed.Because("the header Idempotency-Key has %d bytes: give 1 to %d, or leave it out", len(key), MaxKey)
	case header != nil && inBody != "" && inBody != key:
		return "", problem.Malformed.Because("the header Idempotency-Key and the body's key differ: give one of them")
	case header == nil:
		return inBody, nil
	}
	return key, nil
}

// MaxGate is the longest gate that a workflow looks at, in characters.
const MaxGate = 100

// Named reads a document that is sent to the address of an object: a plan, say, of that name. Name and document have to be legal.
func Named[T any](c echo.Context, what, name string, legal func(string) error, decode func([]byte) (T, strictyaml.Errors)) (T, error) {
	document, wrong, err := Decode(c, decode)
	if err != nil {
		return document, err
	}
	if err := legal(name); err != nil {
		return document, problem.Malformed.Because("the %s cannot be called so: %v", what, err)
	}
	if len(wrong) > 0 {
		return document, problem.WrongDocument(what+" "+name, wrong)
	}
	return document, nil
}

// maxBody is how large a body may be: a plan of 1,000 items is a tenth of it.
const maxBody = 4 << 20

// The types of a document. The last four are what YAML was called before it had a registered type.
var (
	documentTypes = []string{answer.TypeJSON, "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}
	jsonTypes     = []string{answer.TypeJSON}
)

// readBody reads a body of one of these types. An empty one has no type to be wrong.
func readBody(c echo.Context, types []string) (body []byte, contentType string, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, "", err
	}
	if err != nil {
		return nil, "", problem.Malformed.Because("the body could not be read to its end: %v", err)
	}
	header := c.Request().Header.Get(echo.HeaderContentType)
	contentType, parameters, err := mime.ParseMediaType(header)
	if len(body) == 0 {
		return body, contentType, nil
	}
	if err != nil || !slices.Contains(types, contentType) {
		return nil, "", problem.UnsupportedType.Because("the body's Content-Type is %q: send %s", header,
			strings.Join(types[:min(len(types), 2)], " or "))
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, "", problem.UnsupportedType.Because("the body's charset is %q: send UTF-8", charset)
	}
	return body, contentType, nil
}

// Decode reads a document by its decoder; wrong is everything that is wrong with it.
func Decode[T any](c echo.Context, decode func([]byte) (T, strictyaml.Errors)) (document T, wrong strictyaml.Errors, err error) {
	body, contentType, err := readBody(c, documentTypes)
	if err != nil {
		return document, nil, err
	}
	if document, wrong = decode(body); len(wrong) == 0 {
		wrong = notJSON(body, contentType == answer.TypeJSON)
	}
	return document, wrong, nil
}

// notJSON is the error of a body that calls itself JSON but is not; nil when all is well.
func notJSON(body []byte, isJSON bool) strictyaml.Errors {
	if !isJSON {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	if err == nil {
		return nil
	}
	found := strictyaml.FieldError{Reason: fmt.Sprintf("is not JSON, though its Content-Type says so (%v): send YAML as application/yaml",
		err)}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		found.Line = 1 + strings.Count(string(body[:min(int(syntax.Offset), len(body))]), "\n")
	}
	return strictyaml.Errors{found}
}

// Field is one field of a small request: a text of at most so many characters.
type Field struct {
	Name string
	Most int
	Into *string
	// Number is where a whole number from 1 goes, for a field that is no text.
	Number *int
	// Refused says why the field is not taken although it is well known elsewhere.
	Refused string
}

// Fields reads a small JSON request strictly: unknown fields and wrong types are refused, all at once. Every field is optional, the body
// too.
func Fields(c echo.Context, fields ...Field) error { return FieldsAnd(c, More{}, fields...) }

// More are fields of a request that are no texts.
type More struct {
	Names []string
	Read  func(m strictyaml.Mapping, found *strictyaml.Findings)
}

// FieldsAnd reads a request as Fields does, with more fields.
func FieldsAnd(c echo.Context, more More, fields ...Field) error {
	body, contentType, err := readBody(c, jsonTypes)
	if err != nil || len(body) == 0 {
		return err
	}
	if wrong := notJSON(body, contentType == answer.TypeJSON); wrong != nil {
		return problem.MalformedBody(wrong)
	}
	root, found, ok := strictyaml.Parse(body)
	if ok {
		names := make([]string, len(fields))
		for i, field := range fields {
			names[i] = field.Name
		}
		mapping := root.Mapping(append(names, more.Names...)...)
		for _, field := range fields {
			field.read(mapping.Field(field.Name))
		}
		if more.Read != nil {
			more.Read(mapping, found)
		}
	}
	if errors := found.Sorted(); len(errors) > 0 {
		return problem.MalformedBody(errors)
	}
	return nil
}

func (f Field) read(value strictyaml.Value) {
	if f.Refused != "" {
		if value.Present() {
			value.CannotRead("%s", f.Refused)
		}
		return
	}
	if f.Number != nil {
		if value.Present() {
			*f.Number = int(value.Integer(1, math.MaxInt32))
		}
		return
	}
	text := strings.TrimSpace(value.FreeText())
	if length := len([]rune(text)); length > f.Most {
		value.CannotRead("has %d characters: at most %d are kept", length, f.Most)
		return
	}
	*f.Into = text
}
