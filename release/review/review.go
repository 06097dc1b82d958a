// Package review reads the reviews that API servers send to webhooks, without decoding the objects in them: a decoded
// object takes up to thirty times the memory of its JSON.
package review

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Review is a review: its kind, and the members of its request that the reader asked for, as JSON. The values are parts
// of the body.
type Review struct {
	APIVersion, Kind string
	Request          map[string]jsontext.Value
}

var errNoObject = errors.New("it is no JSON object")

// Read reads a review from its JSON, with these members of the request. Together with an error, it returns what it has
// read until then: API servers begin a review with its kind, the request's UID, the object's name and the user, so that
// the beginning of a review is enough to answer it.
func Read(body []byte, names ...string) (r Review, err error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	d := NewDecoder(body)
	err = Members(d, func(name string) error {
		switch name {
		case "apiVersion":
			return readText(d, &r.APIVersion)
		case "kind":
			return readText(d, &r.Kind)
		case "request":
			return r.readRequest(d, wanted)
		}
		return d.SkipValue()
	})
	return r, err
}

func (r *Review) readRequest(d *jsontext.Decoder, wanted map[string]bool) error {
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	r.Request = map[string]jsontext.Value{}
	return Members(d, func(name string) error {
		if !wanted[name] {
			return d.SkipValue()
		}
		value, err := d.ReadValue()
		if err == nil {
			r.Request[name] = value
		}
		return err
	})
}

// Check returns an error unless the review is of this kind and version, and has a request.
func (r Review) Check(version, kind string) error {
	if r.APIVersion != version || r.Kind != kind || r.Request == nil {
		return fmt.Errorf("the request is not a %s of %s with a request", kind, version)
	}
	return nil
}

// Text returns a member of the request that is a string; "" if it is none.
func (r Review) Text(name string) string {
	var text string
	if value := r.Request[name]; value != nil {
		_ = readText(NewDecoder(value), &text)
	}
	return text
}

// Member returns the text of a member of an object in the request; "" if there is none.
func (r Review) Member(object, name string) (text string) {
	d := NewDecoder(r.Request[object])
	_ = Members(d, func(found string) error {
		if found == name {
			return readText(d, &text)
		}
		return d.SkipValue()
	})
	return text
}

// readText reads a value, and sets text if it is a string.
func readText(d *jsontext.Decoder, text *string) error {
	if d.PeekKind() != '"' {
		return d.SkipValue()
	}
	token, err := d.ReadToken()
	if err == nil {
		*text = token.String()
	}
	return err
}

// NewDecoder returns a decoder of JSON in memory. The values that it reads are parts of the JSON, not copies. Of
// members with the same name the last one counts.
func NewDecoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Members calls read for each member of the next value, which must be an object. read reads the member's value.
func Members(d *jsontext.Decoder, read func(name string) error) error {
	begin, err := d.ReadToken()
	if err != nil {
		return err
	}
	if begin.Kind() != '{' {
		return errNoObject
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// Elements calls read for each element of the next value, which must be a list.
func Elements(d *jsontext.Decoder, read func(value jsontext.Value) error) error {
	begin, err := d.ReadToken()
	if err != nil {
		return err
	}
	if begin.Kind() != '[' {
		return errors.New("it is no list")
	}
	for d.PeekKind() != ']' {
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := read(value); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

// Canonical returns JSON in the form that is equal for equal values: members are in the order of their names. Numbers
// keep their digits: 1 and 1.0 are not equal, as in decoded objects.
func Canonical(raw []byte) ([]byte, error) {
	return jsontext.AppendFormat(make([]byte, 0, len(raw)), raw, jsontext.ReorderRawObjects(true),
		jsontext.CanonicalizeRawInts(false), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// maxDepth is how deep the objects and lists of an object may be nested.
const maxDepth = 500

// CheckTokens returns an error if JSON has more tokens than this (names, values and brackets), or is nested too deeply.
// Decoded, a value takes up to a hundred bytes however short it is.
func CheckTokens(raw []byte, most int) error {
	d := NewDecoder(raw)
	for n := 0; ; n++ {
		switch _, err := d.ReadToken(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n >= most:
			return fmt.Errorf("an object has more than %d names, values and brackets", most)
		case d.StackDepth() > maxDepth:
			return fmt.Errorf("an object is nested more than %d levels deep", maxDepth)
		}
	}
}
