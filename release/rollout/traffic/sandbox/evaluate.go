// Package sandbox evaluates the Lua scripts for classes of Ingress and custom objects. A script computes a value from a
// value, without files, network, clock or random numbers, so its result is always the same. The caller limits its time
// and memory.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// Request is one run of a script. Input becomes its global obj.
type Request struct {
	Script string          `json:"script"`
	Source string          `json:"source"`
	Input  json.RawMessage `json:"input"`
}

// Response is the result of a run; exactly one of its fields is set.
type Response struct {
	Output json.RawMessage `json:"output,omitempty"`
	// Refusal is what the script reports that it cannot do.
	Refusal *Refusal `json:"refusal,omitempty"`
	Trouble *Trouble `json:"trouble,omitempty"`
}

// Refusal is raised by the function refuse(field, reason). Field is a path within the step, "matches[0].path", "" for
// the whole step.
type Refusal struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// Trouble is an error in a script.
type Trouble struct {
	// Line is the line of the error, 0 if unknown.
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
}

// Message returns the error as a sentence that names the script.
func (t Trouble) Message(script string) string {
	if t.Line == 0 {
		return fmt.Sprintf("script %s: %s", script, t.Reason)
	}
	return fmt.Sprintf("script %s, line %d: %s", script, t.Line, t.Reason)
}

const (
	callDepth    = 200
	registrySize = 8 << 10
	maxRegistry  = 256 << 10
	// MaxOutput bounds what a script may return, in bytes of JSON.
	MaxOutput = 1 << 20
)

// Run is one execution of a script.
type Run struct {
	request Request
	state   *lua.LState
}

// Prepare returns a run that is ready to evaluate. If the context ends, the run stops, and its reason is the context's
// cause.
func Prepare(ctx context.Context, req Request) *Run {
	state := lua.NewState(lua.Options{SkipOpenLibs: true, CallStackSize: callDepth, RegistrySize: registrySize,
		RegistryMaxSize: maxRegistry})
	state.SetContext(ctx)
	openLibraries(state)
	return &Run{request: req, state: state}
}

// Line returns the line that is being executed, 0 if there is none. It may be called while the script runs, and is then
// only a hint.
func (r *Run) Line() (line int) {
	defer func() {
		if recover() != nil {
			line = 0
		}
	}()
	for level := range 2 {
		if _, line := position(r.request.Script, r.state.Where(level)); line > 0 {
			return line
		}
	}
	return 0
}

// Evaluate runs the script to its end.
func (r *Run) Evaluate() Response {
	defer r.state.Close()
	var input any
	if err := json.Unmarshal(r.request.Input, &input); err != nil {
		return Response{Trouble: &Trouble{Reason: "its input is not JSON: " + err.Error()}}
	}
	script, err := r.state.Load(strings.NewReader(r.request.Source), r.request.Script)
	if err != nil {
		return Response{Trouble: syntax(err)}
	}
	r.state.SetGlobal("obj", fromJSON(r.state, input))
	r.state.Push(script)
	if err := r.state.PCall(0, 1, nil); err != nil {
		return r.failed(err)
	}
	value, err := toJSON(r.state.Get(-1), "result", 0)
	if err != nil {
		return Response{Trouble: &Trouble{Reason: err.Error()}}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return Response{Trouble: &Trouble{Reason: "its result is not JSON: " + err.Error()}}
	}
	if len(raw) > MaxOutput {
		return Response{Trouble: &Trouble{Reason: fmt.Sprintf("it returned %d bytes, the most is %d", len(raw),
			MaxOutput)}}
	}
	return Response{Output: raw}
}

// failed returns the response for a script that ended with an error.
func (r *Run) failed(err error) Response {
	var api *lua.ApiError
	if !errors.As(err, &api) {
		return Response{Trouble: &Trouble{Reason: err.Error()}}
	}
	if raised, is := api.Object.(*lua.LTable); is && raised.RawGetString(refusalMark) == lua.LTrue {
		return Response{Refusal: &Refusal{Field: lua.LVAsString(raised.RawGetString("field")),
			Reason: lua.LVAsString(raised.RawGetString("reason"))}}
	}
	text := api.Error()
	if api.Object != nil && api.Object != lua.LNil {
		text = api.Object.String()
		if api.Object.Type() == lua.LTTable {
			text = "it raised a table as an error"
		}
	}
	reason, line := position(r.request.Script, text)
	if ctx := r.state.Context(); ctx.Err() != nil {
		reason = context.Cause(ctx).Error()
	}
	return Response{Trouble: &Trouble{Line: line, Reason: firstLine(reason)}}
}

var positionPattern = regexp.MustCompile(`^(.*?):(\d+):\s*`)

// position splits "name:12: text" into text and line.
func position(script, text string) (rest string, line int) {
	m := positionPattern.FindStringSubmatchIndex(text)
	if m == nil || text[m[2]:m[3]] != script {
		return text, 0
	}
	line, err := strconv.Atoi(text[m[4]:m[5]])
	if err != nil {
		return text, 0
	}
	return text[m[1]:], line
}

func syntax(err error) *Trouble {
	var api *lua.ApiError
	if errors.As(err, &api) {
		err = api.Cause
	}
	var p *parse.Error
	if errors.As(err, &p) {
		return &Trouble{Line: max(p.Pos.Line, 0), Reason: fmt.Sprintf("it is not valid Lua: %s near %q", p.Message,
			p.Token)}
	}
	var c *lua.CompileError
	if errors.As(err, &c) {
		return &Trouble{Line: c.Line, Reason: "it is not valid Lua: " + c.Message}
	}
	return &Trouble{Reason: "it is not valid Lua: " + firstLine(err.Error())}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// maxRepeat bounds the result of string.rep, in bytes.
const maxRepeat = 64 << 10

// refusalMark is the field that identifies an error raised by refuse.
const refusalMark = "__slipway_refusal"

// openLibraries opens what a script may use: base without functions that load, print or inspect, table, string, math
// without random numbers, json and refuse.
func openLibraries(state *lua.LState) {
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}, {lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
	} {
		state.Push(state.NewFunction(library.open))
		state.Push(lua.LString(library.name))
		state.Call(1, 0)
	}
	for _, name := range []string{
		"collectgarbage", "dofile", "getfenv", "load", "loadfile", "loadstring", "module", "newproxy", "print",
		"require", "setfenv",
		"_printregs",
	} {
		state.SetGlobal(name, lua.LNil)
	}
	state.SetGlobal("tostring", state.NewFunction(plainToString))
	state.SetGlobal("refuse", state.NewFunction(raiseRefusal))
	math, text := state.GetGlobal(lua.MathLibName), state.GetGlobal(lua.StringLibName)
	state.SetField(math, "random", lua.LNil)
	state.SetField(math, "randomseed", lua.LNil)
	state.SetField(text, "dump", lua.LNil)
	state.SetField(text, "rep", state.NewFunction(boundedRepeat))
	codec := map[string]lua.LGFunction{"encode": encode, "decode": decode}
	state.SetGlobal("json", state.SetFuncs(state.NewTable(), codec))
}

// plainToString is tostring without memory addresses, which differ from run to run.
func plainToString(state *lua.LState) int {
	value := state.CheckAny(1)
	switch value.Type() {
	case lua.LTTable, lua.LTFunction, lua.LTUserData, lua.LTThread, lua.LTChannel:
		state.Push(lua.LString(value.Type().String()))
	default:
		state.Push(lua.LString(value.String()))
	}
	return 1
}

func boundedRepeat(state *lua.LState) int {
	text, times := state.CheckString(1), state.CheckInt(2)
	if times <= 0 || text == "" {
		state.Push(lua.LString(""))
		return 1
	}
	if times > maxRepeat/len(text) {
		state.RaiseError("string.rep would make more than %d bytes", maxRepeat)
	}
	state.Push(lua.LString(strings.Repeat(text, times)))
	return 1
}

// raiseRefusal implements refuse(field, reason): the script cannot do what the step asks.
func raiseRefusal(state *lua.LState) int {
	refusal := state.NewTable()
	refusal.RawSetString(refusalMark, lua.LTrue)
	refusal.RawSetString("field", lua.LString(state.CheckString(1)))
	refusal.RawSetString("reason", lua.LString(state.CheckString(2)))
	state.Error(refusal, 1)
	return 0
}

func encode(state *lua.LState) int {
	value, err := toJSON(state.CheckAny(1), "value", 0)
	if err != nil {
		state.RaiseError("json.encode: %s", err.Error())
	}
	raw, err := json.Marshal(value)
	if err != nil {
		state.RaiseError("json.encode: %s", err.Error())
	}
	state.Push(lua.LString(raw))
	return 1
}

func decode(state *lua.LState) int {
	var value any
	if err := json.Unmarshal([]byte(state.CheckString(1)), &value); err != nil {
		state.RaiseError("json.decode: %s", err.Error())
	}
	state.Push(fromJSON(state, value))
	return 1
}

// maxDepth bounds how deeply tables may be nested, so that a table that contains itself is detected.
const maxDepth = 64

// The names, in the registry, of the metatables that distinguish an empty list from an empty object when a value is
// converted back to JSON.
const (
	metaList   = "slipway.list"
	metaObject = "slipway.object"
)

// fromJSON returns a Lua value. Members are inserted in the order of their names, so that pairs always iterates in the
// same order.
func fromJSON(state *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := state.CreateTable(len(v), 0)
		for _, item := range v {
			table.Append(fromJSON(state, item))
		}
		table.Metatable = originMetatable(state, metaList)
		return table
	case map[string]any:
		table := state.CreateTable(0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			table.RawSetString(key, fromJSON(state, v[key]))
		}
		table.Metatable = originMetatable(state, metaObject)
		return table
	default:
		return lua.LNil
	}
}

func originMetatable(state *lua.LState, name string) *lua.LTable {
	meta := state.NewTypeMetatable(name)
	meta.RawSetString(metaName, lua.LString(name))
	return meta
}

// toJSON converts a Lua value to JSON. An empty table is the list or object that it was made from. An empty table that
// the script made is null, since its type is unknown, and is left out of an object. where is its place, for messages;
// depth is how many tables it is in.
func toJSON(value lua.LValue, where string, depth int) (any, error) {
	switch v := value.(type) {
	case lua.LBool:
		return bool(v), nil
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		return wholeNumber(float64(v), where)
	case *lua.LTable:
		if depth >= maxDepth {
			return nil, fmt.Errorf("%s is deeper than %d tables", where, maxDepth)
		}
		return tableToJSON(v, where, depth)
	case *lua.LNilType:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s is a %s, which JSON does not have", where, value.Type())
	}
}

func wholeNumber(n float64, where string) (any, error) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, fmt.Errorf("%s is a number that JSON cannot represent", where)
	}
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return int64(n), nil
	}
	return n, nil
}

// tableToJSON returns a list if the keys are 1 to n, an object if they are all strings.
func tableToJSON(table *lua.LTable, where string, depth int) (any, error) {
	members, items := map[string]any{}, map[int]any{}
	var failed error
	table.ForEach(func(key, value lua.LValue) {
		if failed != nil {
			return
		}
		switch k := key.(type) {
		case lua.LString:
			var member any
			if member, failed = toJSON(value, where+"."+string(k), depth+1); failed == nil && member != nil {
				members[string(k)] = member
			}
		case lua.LNumber:
			i := int(k)
			if lua.LNumber(i) != k || i < 1 {
				failed = fmt.Errorf("%s has the key %v: a list begins at 1", where, float64(k))
				return
			}
			items[i], failed = toJSON(value, fmt.Sprintf("%s[%d]", where, i), depth+1)
		default:
			failed = fmt.Errorf("%s has a key that is a %s", where, key.Type())
		}
	})
	if failed != nil {
		return nil, failed
	}
	return listOrObject(table, where, members, items)
}

func listOrObject(table *lua.LTable, where string, members map[string]any, items map[int]any) (any, error) {
	switch {
	case len(items) > 0 && len(members) > 0:
		return nil, errors.New(where + " has both numbers and names as keys: JSON has lists and objects only")
	case len(items) > 0:
		list := make([]any, len(items))
		for i := range list {
			item, there := items[i+1]
			if !there {
				return nil, fmt.Errorf("%s has holes: there is no [%d]", where, i+1)
			}
			list[i] = item
		}
		return list, nil
	case len(members) > 0:
		return members, nil
	}
	switch originOf(table) {
	case metaList:
		return []any{}, nil
	case metaObject:
		return map[string]any{}, nil
	default:
		return nil, nil
	}
}

func originOf(table *lua.LTable) string {
	meta, is := table.Metatable.(*lua.LTable)
	if !is {
		return ""
	}
	return lua.LVAsString(meta.RawGetString(metaName))
}

const metaName = "__slipway"
