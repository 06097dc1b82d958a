package sandbox

import (
	"encoding/json"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// longestRepeat bounds string.rep, in bytes.
const longestRepeat = 64 << 10

// refusalMark is the field by which an error raised by refuse is known.
const refusalMark = "__slipway_refusal"

// openLibraries opens what a script may use: base without anything that loads, prints or looks into functions; table, string, math without
// chance; json; refuse.
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
