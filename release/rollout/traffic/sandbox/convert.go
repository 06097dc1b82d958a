package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	lua "github.com/yuin/gopher-lua"
)

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
