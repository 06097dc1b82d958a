// Package sandbox evaluates the Lua scripts that know a class of Ingress or a custom object: they compute a value from a value, without
// files, network, clock or chance, so always the same. How much time and memory they take is the caller's to bound.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
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

// Response is what came of it; exactly one of its parts is set.
type Response struct {
	Output json.RawMessage `json:"output,omitempty"`
	// Refusal is what the script says it cannot do.
	Refusal *Refusal `json:"refusal,omitempty"`
	Trouble *Trouble `json:"trouble,omitempty"`
}

// Refusal is raised by the function refuse(field, reason). Field is a path within the step, "matches[0].path", "" for the whole.
type Refusal struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// Trouble is a script that breaks.
type Trouble struct {
	// Line is where, 0 when it is not known.
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
}

// Say is the trouble in a sentence that names the script.
func (t Trouble) Say(script string) string {
	if t.Line == 0 {
		return fmt.Sprintf("script %s: %s", script, t.Reason)
	}
	return fmt.Sprintf("script %s, line %d: %s", script, t.Line, t.Reason)
}

const (
	callDepth    = 200
	registrySize = 8 << 10
	registryMost = 256 << 10
	// MaxOutput bounds what a script may return, in bytes of JSON.
	MaxOutput = 1 << 20
)

// Run is one script under way.
type Run struct {
	request Request
	state   *lua.LState
}

// Prepare makes a run ready. The context ends it early: the reason is then the context's cause.
func Prepare(ctx context.Context, req Request) *Run {
	state := lua.NewState(lua.Options{SkipOpenLibs: true, CallStackSize: callDepth, RegistrySize: registrySize, RegistryMaxSize: registryMost})
	state.SetContext(ctx)
	openLibraries(state)
	return &Run{request: req, state: state}
}

// Line is the line that is being executed, 0 when none is. It may be asked while the script runs, and is then no more than a hint.
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
		return Response{Trouble: &Trouble{Reason: "its input is no JSON: " + err.Error()}}
	}
	chunk, err := parse.Parse(strings.NewReader(r.request.Source), r.request.Script)
	if err != nil {
		return Response{Trouble: syntax(err)}
	}
	compiled, err := lua.Compile(chunk, r.request.Script)
	if err != nil {
		return Response{Trouble: syntax(err)}
	}
	r.state.SetGlobal("obj", fromJSON(r.state, input))
	r.state.Push(r.state.NewFunctionFromProto(compiled))
	if err := r.state.PCall(0, 1, nil); err != nil {
		return r.failed(err)
	}
	value, err := toJSON(r.state.Get(-1), "result")
	if err != nil {
		return Response{Trouble: &Trouble{Reason: err.Error()}}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return Response{Trouble: &Trouble{Reason: "its result is no JSON: " + err.Error()}}
	}
	if len(raw) > MaxOutput {
		return Response{Trouble: &Trouble{Reason: fmt.Sprintf("it returned %d bytes, the most is %d", len(raw), MaxOutput)}}
	}
	return Response{Output: raw}
}

// failed sorts what a script was ended by.
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

var located = regexp.MustCompile(`^(.*?):(\d+):\s*`)

// position takes "name:12: text" apart.
func position(script, text string) (rest string, line int) {
	m := located.FindStringSubmatchIndex(text)
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
	var p *parse.Error
	if errors.As(err, &p) {
		return &Trouble{Line: max(p.Pos.Line, 0), Reason: fmt.Sprintf("it is no Lua: %s near %q", p.Message, p.Token)}
	}
	var c *lua.CompileError
	if errors.As(err, &c) {
		return &Trouble{Line: c.Line, Reason: "it is no Lua: " + c.Message}
	}
	return &Trouble{Reason: "it is no Lua: " + firstLine(err.Error())}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// longestRepeat bounds string.rep, in bytes.
const longestRepeat = 64 << 10

// refusalMark is the field by which an error raised by refuse is known.
const refusalMark = "__slipway_refusal"

// openLibraries opens what a script may use: base without what loads, prints or inspects, table, string, math without chance, json, refuse.
func openLibraries(state *lua.LState) {
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}, {lua.StringLibName, lua.OpenString}, {lua.MathLibName, lua.OpenMath},
	} {
		state.Push(state.NewFunction(library.open))
		state.Push(lua.LString(library.name))
		state.Call(1, 0)
	}
	for _, name := range []string{
		"collectgarbage", "dofile", "getfenv", "load", "loadfile", "loadstring", "module", "newproxy", "print", "require", "setfenv",
		"_printregs",
	} {
		state.SetGlobal(name, lua.LNil)
	}
	state.SetGlobal("tostring", state.NewFunction(plainToString))
	state.SetGlobal("refuse", state.NewFunction(raiseRefusal))
	strip(state, lua.MathLibName, "random", "randomseed")
	strip(state, lua.StringLibName, "dump")
	field(state, lua.StringLibName, "rep", boundedRepeat)
	codec := state.NewTable()
	state.SetGlobal("json", codec)
	codec.RawSetString("encode", state.NewFunction(encode))
	codec.RawSetString("decode", state.NewFunction(decode))
}

func strip(state *lua.LState, library string, names ...string) {
	if table, is := state.GetGlobal(library).(*lua.LTable); is {
		for _, name := range names {
			table.RawSetString(name, lua.LNil)
		}
	}
}

func field(state *lua.LState, library, name string, function lua.LGFunction) {
	if table, is := state.GetGlobal(library).(*lua.LTable); is {
		table.RawSetString(name, state.NewFunction(function))
	}
}

// plainToString is tostring without addresses in memory, which differ from run to run.
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
	if times > longestRepeat/len(text) {
		state.RaiseError("string.rep would make more than %d bytes", longestRepeat)
	}
	state.Push(lua.LString(strings.Repeat(text, times)))
	return 1
}

// raiseRefusal is refuse(field, reason): the script cannot do what the step asks.
func raiseRefusal(state *lua.LState) int {
	refusal := state.NewTable()
	refusal.RawSetString(refusalMark, lua.LTrue)
	refusal.RawSetString("field", lua.LString(state.CheckString(1)))
	refusal.RawSetString("reason", lua.LString(state.CheckString(2)))
	state.Error(refusal, 1)
	return 0
}

func encode(state *lua.LState) int {
	value, err := toJSON(state.CheckAny(1), "value")
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
