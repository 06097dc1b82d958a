package strictyaml_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/strictyaml"
)

type inlined struct {
	Size int32 `json:"size,omitempty"`
}

type part struct {
	inlined `json:",inline"`

	Name   string                       `json:"name"`
	Port   *intstr.IntOrString          `json:"port,omitempty"`
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
	Args   []string                     `json:"args,omitempty"`
	On     bool                         `json:"on,omitempty"`
	// Env is of another package: its name has no omitempty either, but it is not required.
	Env *corev1.EnvVar `json:"env,omitempty"`
}

type whole struct {
	Parts []part `json:"parts"`
	Count *int64 `json:"count,omitempty"`
}

func TestDecode_ReadsJSONNames(t *testing.T) {
	t.Parallel()
	five, port := int64(5), intstr.FromString("http")
	want := whole{Count: &five, Parts: []part{{inlined: inlined{Size: 2}, Name: "a", Port: &port,
		Limits: map[string]resource.Quantity{"cpu": resource.MustParse("100m")}, Args: []string{"", "-x"}, On: true,
		Env: &corev1.EnvVar{Value: "v"}}}}
	for name, text := range map[string]string{
		"YAML": "count: 5\nparts:\n- {name: a, size: 2, port: http, limits: {cpu: 100m}, args: ['', -x], on: true, " +
			"env: {value: v}}\n",
		"JSON": `{"count": 5, "parts": [{"name": "a", "size": 2, "port": "http", "limits": {"cpu": "100m"},
			"args": ["", "-x"], "on": true, "env": {"value": "v"}}]}`,
	} {
		got, wrong := strictyaml.Decode[whole]([]byte(text))
		require.Empty(t, wrong, name)
		require.Equal(t, want, got, name)
	}
	got, wrong := strictyaml.Decode[whole]([]byte("parts: [{name: a, port: 80, limits: {cpu: 1, memory: 1.5}}]\ncount:\n"))
	require.Empty(t, wrong)
	require.Nil(t, got.Count, "a key without a value counts as absent")
	require.Equal(t, int32(80), got.Parts[0].Port.IntVal)
	cpu, memory := got.Parts[0].Limits["cpu"], got.Parts[0].Limits["memory"]
	require.Equal(t, []string{"1", "1500m"}, []string{cpu.String(), memory.String()}, "a quantity can be a number")
}

func TestDecode_ListsAllErrors(t *testing.T) {
	t.Parallel()
	_, wrong := strictyaml.Decode[whole]([]byte(`count: "5"
parts:
- size: 3000000000
  port: [1]
  limits:
    cpu: fast
    memory: &m 1Mi
  args: x
  on: "yes"
- name: ""
  nmae: b
  env: {nam: A}
- text
-
count: 6
`))
	require.Equal(t, []string{
		`line 1, count: must be a whole number, not the text "5": leave out the quotes`,
		"line 3, parts[0].size: must be from -2147483648 to 2147483647, not 3000000000",
		"line 3, parts[0].name: is missing",
		"line 4, parts[0].port: cannot be read: json: cannot unmarshal array into Go value of type int32",
		"line 6, parts[0].limits.cpu: cannot be read: quantities must match the regular expression " +
			"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		"line 7, parts[0].limits.memory: has an anchor (&m), which is not supported: write the value without it",
		`line 8, parts[0].args: must be a list, not the text "x"`,
		`line 9, parts[0].on: must be true or false, not the text "yes"`,
		"line 10, parts[1].name: is empty: write a value, or leave the key out",
		`line 11, parts[1].nmae: unknown key "nmae": did you mean "name"?`,
		`line 12, parts[1].env.nam: unknown key "nam": did you mean "name"?`,
		`line 13, parts[2]: must be a mapping with the keys size, name, port, limits, args, on, env, not the text "text"`,
		"line 14, parts[3]: has no value: write one, or leave the key out",
		"line 15, count: appears twice (lines 1 and 15): keep one",
	}, lines(wrong))

	_, wrong = strictyaml.Decode[whole]([]byte("count: 1\n"))
	require.Equal(t, []string{"line 1, parts: is missing"}, lines(wrong))
	for _, text := range []string{"", "[]", "a: b: c"} {
		_, wrong = strictyaml.Decode[whole]([]byte(text))
		require.Len(t, wrong, 1, "not a mapping: %q", text)
	}
}

func lines(wrong strictyaml.Errors) (all []string) {
	for _, one := range wrong {
		all = append(all, one.Error())
	}
	return all
}

type entry struct {
	Name    string `json:"name"`
	Size    *int32 `json:"size,omitempty"`
	Seconds int64  `json:"seconds,omitempty" most:"60"`
	On      *bool  `json:"on,omitempty"`
	Parts   []struct {
		A string `json:"a"`
	} `json:"parts,omitempty"`
	Port *intstr.IntOrString `json:"port,omitempty"`
}

func TestMapping_Into(t *testing.T) {
	t.Parallel()
	read := func(text string) (e entry, wrong strictyaml.Errors) {
		root, found, ok := strictyaml.Parse([]byte(text))
		require.True(t, ok)
		root.Mapping("name", "size", "seconds", "on", "parts", "port").Into(&e)
		return e, found.Sorted()
	}
	got, wrong := read("name: a\nsize: 3\nseconds: 60\non: false\nparts: [{a: b}]\n")
	require.Empty(t, wrong)
	require.Equal(t, "a", got.Name)
	require.Equal(t, int32(3), *got.Size)
	require.Equal(t, int64(60), got.Seconds)
	require.False(t, *got.On)
	require.Equal(t, "b", got.Parts[0].A)

	got, wrong = read("name: \"\"\nsize: 0\nseconds: 61\non: maybe\nparts: [{b: c}]\nport: 1\n")
	require.Equal(t, []string{
		"line 1, name: is empty: write a value, or leave the key out",
		"line 2, size: must be from 1 to 2147483647, not 0",
		"line 3, seconds: must be from 1 to 60, not 61",
		`line 4, on: must be true or false, not the text "maybe"`,
		`line 5, parts[0].b: unknown key "b": the keys here are a`,
		"line 6, port: must be a mapping, not the number 1",
	}, strings.Split(wrong.Error(), "\n"))
	require.Nil(t, got.Port, "what cannot be read stays absent")
}
