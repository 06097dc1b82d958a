package api

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

	"slipway.io/slipway/release/strictyaml"
)

// maxBody is how large a body may be: a plan of 1,000 items is a tenth of it.
const maxBody = 4 << 20

const typeJSON = "application/json"

// The types of a document. The last four are what YAML was called before it had a registered type.
var (
	documentTypes = []string{typeJSON, "application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"}
	jsonTypes     = []string{typeJSON}
)

// readBody reads a body of one of these types. An empty one has no type to be wrong.
func readBody(c echo.Context, types []string) (body []byte, contentType string, err error) {
	body, err = io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, "", err
	}
	if err != nil {
		return nil, "", kindMalformed.because("the body could not be read to its end: %v", err)
	}
	header := c.Request().Header.Get(echo.HeaderContentType)
	contentType, parameters, err := mime.ParseMediaType(header)
	if len(body) == 0 {
		return body, contentType, nil
	}
	if err != nil || !slices.Contains(types, contentType) {
		return nil, "", kindContentType.because("the body's Content-Type is %q: send %s", header, strings.Join(types[:min(len(types), 2)], " or "))
	}
	if charset := parameters["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, "", kindContentType.because("the body's charset is %q: send UTF-8", charset)
	}
	return body, contentType, nil
}

// readDocument reads a plan or a service. What calls itself JSON has to be JSON; its own errors are found by the document's decoder.
func readDocument(c echo.Context) (body []byte, isJSON bool, err error) {
	body, contentType, err := readBody(c, documentTypes)
	return body, contentType == typeJSON, err
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
	found := strictyaml.FieldError{Reason: fmt.Sprintf("is not JSON, though its Content-Type says so (%v): send YAML as application/yaml", err)}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		found.Line = 1 + strings.Count(string(body[:min(int(syntax.Offset), len(body))]), "\n")
	}
	return strictyaml.Errors{found}
}

// textField is one field of a small request: a text of at most so many characters.
type textField struct {
	name string
	most int
	into *string
	// number is where a whole number from 1 goes, for a field that is no text.
	number *int
	// refused says why the field is not taken although it is well known elsewhere.
	refused string
}

// readFields reads a small JSON request strictly: unknown fields and wrong types are refused, all at once. Every field is optional, the body too.
func readFields(c echo.Context, fields ...textField) error {
	body, contentType, err := readBody(c, jsonTypes)
	if err != nil || len(body) == 0 {
		return err
	}
	if wrong := notJSON(body, contentType == typeJSON); wrong != nil {
		return malformedBody(wrong)
	}
	root, found, ok := strictyaml.Parse(body)
	if ok {
		names := make([]string, len(fields))
		for i, field := range fields {
			names[i] = field.name
		}
		mapping := root.Mapping(names...)
		for _, field := range fields {
			field.read(mapping.Field(field.name))
		}
	}
	if errors := found.Sorted(); len(errors) > 0 {
		return malformedBody(errors)
	}
	return nil
}

func (f textField) read(value strictyaml.Value) {
	if f.refused != "" {
		if value.Present() {
			value.CannotRead("%s", f.refused)
		}
		return
	}
	if f.number != nil {
		if value.Present() {
			*f.number = int(value.Integer(1, math.MaxInt32))
		}
		return
	}
	text := value.FreeText()
	if length := len([]rune(text)); length > f.most {
		value.CannotRead("has %d characters: at most %d are kept", length, f.most)
		return
	}
	*f.into = text
}

func malformedBody(errors strictyaml.Errors) error { return wrongDocument("the body", errors) }

// wrongDocument refuses a document with everything that is wrong with it.
func wrongDocument(what string, wrong strictyaml.Errors) error {
	problems := fieldProblems(wrong)
	return kindMalformed.because("%s is not as it should be: %s", what, summary(problems)).listing(problems)
}
