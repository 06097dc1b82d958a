package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	lua "github.com/yuin/gopher-lua"
)

// mostDepth bounds how deep a table may be, so that one that holds itself is noticed.
const mostDepth = 64

// The names, in the registry, of the metatables that tell an empty list from JSON and an empty object apart on the way back.
const (
	metaList   = "slipway.list"
	metaObject = "slipway.object"
)

// fromJSON makes a Lua value. Members come in the order of their names, so that pairs always goes through them alike.
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
		table.Metatable = origin(state, metaList)
		return table
	case map[string]any:
		table := state.CreateTable(0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			table.RawSetString(key, fromJSON(state, v[key]))
		}
		table.Metatable = origin(state, metaObject)
		return table
	default:
		return lua.LNil
	}
}

func origin(state *lua.LState, name string) *lua.LTable {
	meta := state.NewTypeMetatable(name)
	meta.RawSetString(metaName, lua.LString(name))
	return meta
}

// toJSON is a Lua value as JSON has it. An empty table is the list or object that it came from; one that the script made is nothing (null),
// as nothing tells which of the two it is, and is left out of an object. where is its place, for messages.
func toJSON(value lua.LValue, where string) (any, error) { return toJSONAt(value, where, 0) }

func toJSONAt(value lua.LValue, where string, depth int) (any, error) {
	switch v := value.(type) {
	case lua.LBool:
		return bool(v), nil
	case lua.LString:
		return string(v), nil
	case lua.LNumber:
		return wholeNumber(float64(v), where)
	case *lua.LTable:
		if depth >= mostDepth {
			return nil, fmt.Errorf("%s is deeper than %d tables", where, mostDepth)
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
		return nil, fmt.Errorf("%s is no number that JSON has", where)
	}
	if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
		return int64(n), nil
	}
	return n, nil
}

// tableToJSON is a list when the keys are 1 to n, an object when they are all text.
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
			if member, failed = toJSONAt(value, where+"."+string(k), depth+1); failed == nil && member != nil {
				members[string(k)] = member
			}
		case lua.LNumber:
			i := int(k)
			if lua.LNumber(i) != k || i < 1 {
				failed = fmt.Errorf("%s has the key %v: a list begins at 1", where, float64(k))
				return
			}
			items[i], failed = toJSONAt(value, fmt.Sprintf("%s[%d]", where, i), depth+1)
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
	switch typeOf(table) {
	case metaList:
		return []any{}, nil
	case metaObject:
		return map[string]any{}, nil
	default:
		return nil, nil
	}
}

func typeOf(table *lua.LTable) string {
	meta, is := table.Metatable.(*lua.LTable)
	if !is {
		return ""
	}
	return lua.LVAsString(meta.RawGetString(metaName))
}

const metaName = "__slipway"
