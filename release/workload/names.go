package workload

import (
	"cmp"
	"slices"
	"strings"
)

// Key identifies a kind in any version: "apps/Deployment".
func Key(apiVersion, kind string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group + "/" + kind
}

// Key identifies the kind.
func (k Kind) Key() string { return Key(k.Resource.Group, k.Kind) }

// ByKey returns the kind with a key; the zero value if it is unknown.
func ByKey(key string) Kind { return find(func(k Kind) bool { return k.Key() == key }) }

// Of returns the kind of an object, in any version of its API group; the zero value if it is unknown.
func Of(apiVersion, kind string) Kind { return ByKey(Key(apiVersion, kind)) }

// ByWord returns the kind that a user names as in kubectl: "deployment", "sts" or "statefulset.apps.kruise.io". Without
// a group, the first of two kinds with the same name is meant.
func ByWord(text string) Kind {
	word, group, grouped := strings.Cut(strings.ToLower(text), ".")
	return find(func(k Kind) bool {
		if word == strings.ToLower(k.Kind) || word == k.Resource.Resource {
			return !grouped || group == k.Resource.Group
		}
		return !grouped && (word == k.Word() || word == cmp.Or(k.Short, k.Word()))
	})
}

func find(is func(Kind) bool) (found Kind) {
	if i := slices.IndexFunc(Kinds, is); i >= 0 {
		found = Kinds[i]
	}
	return found
}

// Known reports whether the kind is in the table.
func (k Kind) Known() bool { return k.Kind != "" }

func (k Kind) String() string { return k.Kind }

// Name returns the name in texts that do not name the API group.
func (k Kind) Name() string { return cmp.Or(k.Title, k.Kind) }

// Word returns the name on the command line.
func (k Kind) Word() string { return strings.ToLower(strings.ReplaceAll(k.Name(), " ", "")) }

// APIVersions returns the API versions that users may name.
func (k Kind) APIVersions() []string {
	all := []string{k.Resource.GroupVersion().String()}
	for _, version := range k.OtherVersions {
		all = append(all, k.Resource.Group+"/"+version)
	}
	return all
}

// Where returns the kinds that meet a condition.
func Where(is func(Kind) bool) []Kind {
	return slices.DeleteFunc(slices.Clone(Kinds), func(k Kind) bool { return !is(k) })
}

// Supporting returns the kinds that can be rolled out in a style.
func Supporting(style Style) []Kind { return Where(func(k Kind) bool { return k.Supports(style) }) }

// Grouped returns the kinds in groups with the same key.
func Grouped(key func(Kind) string) (groups [][]Kind) {
	for _, k := range Kinds {
		i := slices.IndexFunc(groups, func(group []Kind) bool { return key(group[0]) == key(k) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], k)
	}
	return groups
}

// Names returns the names of kinds, as name forms them.
func Names(kinds []Kind, name func(Kind) string) (names []string) {
	for _, k := range kinds {
		names = append(names, name(k))
	}
	return names
}

// Join joins names as in a sentence: with the last separator " and ", "Deployment, StatefulSet and DaemonSet".
func Join(names []string, last string) string {
	n := len(names) - 1
	if n < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:n], ", ") + last + names[n]
}
