package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// extended matches {{{.NAME.field[0]}}}.
var extended = regexp.MustCompile(`\{\{\{([^{}]*)\}\}\}`)

// path locates a value in a variable that is JSON:
//   - {{{.NAME.field}}}
//   - {{{.NAME.list[0]}}}
//   - {{{.NAME.list[key=value].field}}}: the first element whose key has that value
//   - {{{.NAME.list[.OTHER.field]}}}: the index is the value of another path
type path struct {
	variable string
	steps    []step
}

// step descends one level: to a field, or to a list element selected by its index, by the path of its index
// (indexPath), or by the value of a key.
type step struct {
	field     string
	index     int
	indexPath *path
	key       string
	value     string
}

// replacePaths replaces each extended path by a lookup, and returns the paths by their text.
func replacePaths(text string) (string, map[string]path, error) {
	paths := map[string]path{}
	var problem error
	cut := extended.ReplaceAllStringFunc(text, func(found string) string {
		p, err := parsePath(strings.TrimSpace(strings.Trim(found, "{}")))
		if err != nil && problem == nil {
			problem = fmt.Errorf("%s: %w", found, err)
		}
		paths[found] = p
		return "{{index $ " + strconv.Quote(found) + "}}"
	})
	return cut, paths, problem
}

var errPath = errors.New("is not understood: write {{{.NAME.field}}}, {{{.NAME.list[0]}}}, " +
	"{{{.NAME.list[key=value]}}} or {{{.NAME.list[.OTHER.field]}}}")

// stepForm matches one step of a path: a field, the path of an index, a key with its value, or an index.
var stepForm = regexp.MustCompile(`^(?:\.([^.\[\]]+)|\[(?:(\.[^\[\]]+)|([^\[\]=]+)=([^\[\]]*)|(\+?[0-9]+))\])`)

func parsePath(text string) (p path, err error) {
	for text != "" || p.variable == "" {
		part := stepForm.FindStringSubmatch(text)
		if part == nil || p.variable == "" && part[1] == "" {
			return path{}, errPath
		}
		text = text[len(part[0]):]
		if p.variable == "" { // a path begins with a field, too
			p.variable = strings.ToUpper(part[1])
			continue
		}
		next := step{field: part[1], key: part[3], value: part[4]}
		if part[2] != "" {
			at, err := parsePath(part[2])
			if err != nil {
				return path{}, err
			}
			next.indexPath = &at
		}
		if part[5] != "" {
			if next.index, err = strconv.Atoi(part[5]); err != nil {
				return path{}, errPath
			}
		}
		p.steps = append(p.steps, next)
	}
	return p, nil
}

// documents are the variables that are JSON, each decoded once. left bounds the lookups of all paths together.
type documents struct {
	values map[string]string
	read   map[string]any
	left   *budget
}

// lookupCost is the cost of one lookup of a field or an element, in bytes of the budget: some 260,000 lookups are
// enough for any file, and fast.
const lookupCost = 16

func (d documents) document(variable string) (any, error) {
	if document, done := d.read[variable]; done {
		return document, nil
	}
	decoder := json.NewDecoder(strings.NewReader(d.values[variable]))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", variable, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is not one JSON value", variable)
	}
	d.read[variable] = document
	return document, nil
}

// value returns the value at the path: the content of a JSON string, or JSON. An unknown or empty variable is empty; a
// path that does not exist is an error.
func (p path) value(in documents) (string, error) {
	if in.values[p.variable] == "" {
		return "", nil
	}
	found, err := p.find(in)
	if err != nil {
		return "", err
	}
	switch found := found.(type) {
	case nil:
		return "", nil
	case string:
		return jsonStringContent(found), nil
	}
	return asJSON(found), nil
}

func (p path) find(in documents) (any, error) {
	if len(p.steps) == 0 {
		return in.values[p.variable], nil
	}
	at, err := in.document(p.variable)
	if err != nil {
		return nil, err
	}
	for _, s := range p.steps {
		if at, err = s.take(at, in); err != nil {
			return nil, err
		}
	}
	return at, nil
}

func (s step) take(from any, in documents) (any, error) {
	if err := in.left.take(lookupCost); err != nil {
		return nil, err
	}
	if s.field != "" {
		object, _ := from.(map[string]any)
		value, found := object[s.field]
		if !found {
			return nil, fmt.Errorf("there is no field %s", s.field)
		}
		return value, nil
	}
	list, isList := from.([]any)
	if !isList {
		return nil, errors.New("the value before [ is not a list")
	}
	if s.key != "" {
		return s.elementOf(list, in.left)
	}
	index := s.index
	if s.indexPath != nil {
		value, err := s.indexPath.find(in)
		if err != nil {
			return nil, err
		}
		if index, err = strconv.Atoi(fmt.Sprint(value)); err != nil {
			return nil, fmt.Errorf("%v is not the index of an element", value)
		}
	}
	if index < 0 || index >= len(list) {
		return nil, fmt.Errorf("there is no element %d: the list has %d", index, len(list))
	}
	return list[index], nil
}

// elementOf returns the first element of a list whose key has the given scalar value.
func (s step) elementOf(list []any, left *budget) (any, error) {
	for _, element := range list {
		if err := left.take(lookupCost); err != nil {
			return nil, err
		}
		object, _ := element.(map[string]any)
		switch found := object[s.key].(type) {
		case string, bool, json.Number:
			if fmt.Sprint(found) == s.value {
				return element, nil
			}
		}
	}
	return nil, fmt.Errorf("no element has %s=%s", s.key, s.value)
}
