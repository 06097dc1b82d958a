package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// definition is one setting: a field of Settings with its tags. Values are text until they are parsed; the elements of
// a list are separated by commas.
type definition struct {
	reflect.StructField
	name, help, defaultValue string
	choices                  []string
}

// definitions are all settings, in the order of the documentation.
var definitions = func() []definition {
	var all []definition
	for field := range reflect.TypeFor[Settings]().Fields() {
		tag := field.Tag.Get
		all = append(all, definition{field, tag("name"), tag("help"), tag("default"), strings.Fields(tag("choices"))})
	}
	return all
}()

func definitionOf(name string) (definition, bool) {
	n := slices.IndexFunc(definitions, func(d definition) bool { return d.name == name })
	if n < 0 {
		return definition{}, false
	}
	return definitions[n], true
}

func (d definition) appliesTo(groups ...Group) bool {
	return slices.ContainsFunc(strings.Fields(d.Tag.Get("for")), func(g string) bool {
		return slices.Contains(groups, Group(g))
	})
}

// First returns the first setting of the group.
func First(group Group) string {
	return definitions[slices.IndexFunc(definitions, func(d definition) bool { return d.appliesTo(group) })].name
}

// EnvName returns the environment variable of a setting.
func EnvName(setting string) string {
	return "SLIPWAY_" + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// kinds are the types of settings: their names in the help, and how a value is parsed.
var kinds = map[reflect.Type]struct {
	name  string
	parse func(text string) (any, error)
}{
	reflect.TypeFor[string]():        {"string", func(text string) (any, error) { return text, nil }},
	reflect.TypeFor[[]string]():      {kindList, func(text string) (any, error) { return splitList(text), nil }},
	reflect.TypeFor[bool]():          {kindBool, boolean},
	reflect.TypeFor[int]():           {"int", positive},
	reflect.TypeFor[int64]():         {"size", size},
	reflect.TypeFor[float32]():       {"number", rate},
	reflect.TypeFor[time.Duration](): {"duration", duration},
}

const (
	kindList = "list"
	kindBool = "bool"
)

func (d definition) kind() string { return kinds[d.Type].name }

// set parses and validates a value, and stores it in its field.
func (d definition) set(s *Settings, text string) error {
	value, err := kinds[d.Type].parse(text)
	if err == nil {
		err = d.check(text)
	}
	if err != nil {
		return err
	}
	if strings.HasSuffix(d.Tag.Get("check"), "url") {
		value = strings.TrimRight(text, "/")
	}
	reflect.ValueOf(s).Elem().FieldByIndex(d.Index).Set(reflect.ValueOf(value))
	return nil
}

// check validates a value beyond its type.
func (d definition) check(text string) error {
	if len(d.choices) > 0 && !slices.Contains(d.choices, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(d.choices, ", "))
	}
	if most := d.Tag.Get("max"); most != "" && number(text) > number(most) {
		return fmt.Errorf("%s is too large: want at most %s", text, most)
	}
	check, empty := checks[d.Tag.Get("check")], d.Tag.Get("empty")
	if check == nil || text == "" && (d.defaultValue == "" || empty == "yes") {
		return nil
	}
	if d.kind() != kindList {
		return check(text)
	}
	for part := range strings.SplitSeq(text, ",") {
		if empty == "no" && strings.TrimSpace(part) == "" {
			return fmt.Errorf("%q contains an empty %s: remove it, or set its name", text, d.name)
		}
	}
	for _, part := range splitList(text) {
		if err := check(part); err != nil {
			return err
		}
	}
	return nil
}

// number returns a valid number as a value to compare.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 32)
	return n
}
