// Package input reads what requests have in common: bodies, small forms, keys and the header Slipway-Via.
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

// The maximum lengths of recorded texts, in characters, and of the key of a start, in bytes.
const (
	MaxActor  = workflows.MaxActor
	MaxReason = workflows.MaxReason
	MaxKey    = 255
)

// Via returns the kind of client according to the header Slipway-Via: http (also without the header), cli or console.
func Via(via *schema.Via) (string, error) {
	if via == nil {
		return string(schema.FrontDoorHTTP), nil
	}
	if !via.Valid() {
		return "", problem.Malformed.Because("the header Slipway-Via is %q: give http, cli or console, or leave it out",
			*via)
	}
	return string(*via), nil
}

// Text returns the value of an optional parameter; "" if it is missing.
func Text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Key returns the key of a request from its body or its header.
func Key(inBody string, header *string) (string, error) {
	key := Text(header)
	switch {
	case header != nil && (key == "" || len(key) > MaxKey):
		return "", problem.Malformed.Because("the header Idempotency-Key has %d bytes: give 1 to %d, or leave it out",
			len(key), MaxKey)
	case header != nil && inBody != "" && inBody != key:
		return "", problem.Malformed.Because("the header Idempotency-Key and the body's key differ: give one of them")
	case header == nil:
		return inBody, nil
	}
	return key, nil
}

// MaxGate is the maximum length of a gate, in characters.
const MaxGate = 100

// DecodeNamed reads a document that is sent to the address of an object, for example a plan. Both the name and the
// document have to be legal.
func DecodeNamed[T any](c echo.Context, what, name string, legal func(string) error,
	decode func([]byte) (T, strictyaml.Errors)) (T, error) {
	document, wrong, err := Decode(c, decode)
	if err != nil {
		return document, err
	}
	if err := legal(name); err != nil {
		return document, problem.Malformed.Because("the name of the %s is invalid: %v", what, err)
	}
	if len(wrong) > 0 {
		return document, problem.InvalidDocument(what+" "+name, wrong)
	}
	return document, nil
}

// maxBody is the maximum size of a body: ten times the size of a plan with 1,000 items.
const maxBody = 4 << 20

// The media types of a document. The last three predate the registered type of YAML.
var (
	documentTypes = []string{answer.TypeJSON, "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}
	jsonTypes     = []string{answer.TypeJSON}
)

// readBody reads a body of one of these types. The type of an empty body is not checked.
func readBody(c echo.Context, types []string) (body []byte, contentType string, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxBody))
	if problem.Has[*http.MaxBytesError](err) {
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

// Decode reads a document with decode; wrong are all its errors.
func Decode[T any](c echo.Context, decode func([]byte) (T, strictyaml.Errors)) (document T, wrong strictyaml.Errors,
	err error) {
	body, contentType, err := readBody(c, documentTypes)
	if err != nil {
		return document, nil, err
	}
	done, err := awaitTurn(c.Request().Context(), body)
	if err != nil {
		return document, nil, err
	}
	defer done()
	if document, wrong = decode(body); len(wrong) == 0 {
		wrong = notJSON(body, contentType == answer.TypeJSON)
	}
	return document, wrong, nil
}

// DecodeValid reads a document with decode, and refuses it if it has errors. what names it in them.
func DecodeValid[T any](c echo.Context, what string, decode func([]byte) (T, strictyaml.Errors)) (T, error) {
	document, wrong, err := Decode(c, decode)
	if err == nil && len(wrong) > 0 {
		err = problem.InvalidDocument(what, wrong)
	}
	return document, err
}

// notJSON returns the error of a body that is declared as JSON but is not; else nil.
func notJSON(body []byte, isJSON bool) strictyaml.Errors {
	if !isJSON {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	if err == nil {
		return nil
	}
	found := strictyaml.FieldError{Reason: fmt.Sprintf(
		"is not JSON, though its Content-Type says so (%v): send YAML as application/yaml", err)}
	if syntax, is := errors.AsType[*json.SyntaxError](err); is {
		found.Line = 1 + strings.Count(string(body[:min(int(syntax.Offset), len(body))]), "\n")
	}
	return strictyaml.Errors{found}
}

// Field is one optional field of a small request: a text, or a number.
type Field struct {
	Name string
	// MaxLength is the maximum length of a text, in characters.
	MaxLength int
	Into      *string
	// Number receives a whole number from 1, for a numeric field.
	Number *int
	// Refused is the reason why the field is rejected, although other requests have it.
	Refused string
}

// Unless returns the reason to refuse a field, "" if it is legal.
func Unless(legal bool, reason string) string {
	if legal {
		return ""
	}
	return reason
}

// Fields reads a small JSON request strictly: it reports all unknown fields and wrong types at once. All fields and the
// body are optional.
func Fields(c echo.Context, fields ...Field) error { return FieldsWith(c, ExtraFields{}, fields...) }

// ExtraFields are fields of a request that are not texts or numbers.
type ExtraFields struct {
	Names []string
	Read  func(m strictyaml.Mapping, found *strictyaml.Findings)
}

// FieldsWith reads a request like Fields, with extra fields.
func FieldsWith(c echo.Context, more ExtraFields, fields ...Field) error {
	body, contentType, err := readBody(c, jsonTypes)
	if err != nil || len(body) == 0 {
		return err
	}
	done, err := awaitTurn(c.Request().Context(), body)
	if err != nil {
		return err
	}
	defer done()
	if wrong := notJSON(body, contentType == answer.TypeJSON); wrong != nil {
		return problem.InvalidDocument("the body", wrong)
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
		return problem.InvalidDocument("the body", errors)
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
	if length := len([]rune(text)); length > f.MaxLength {
		value.CannotRead("has %d characters: at most %d are allowed", length, f.MaxLength)
		return
	}
	*f.Into = text
}
