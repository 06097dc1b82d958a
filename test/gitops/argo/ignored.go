package main

import (
	"strconv"
	"strings"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ignored holds the fields of an Application's ignoreDifferences, by kind, as JSON pointers. Argo CD implements that
// outside its library, as a normalizer.
type ignored map[string][]string

// Ignore adds a field, as ignoreDifferences does with RespectIgnoreDifferences=true.
func (all ignored) Ignore(kind, pointer string) { all[kind] = append(all[kind], pointer) }

// Normalize removes the ignored fields from an object before it is compared.
func (all ignored) Normalize(o *unstructured.Unstructured) error {
	for _, pointer := range all[o.GetKind()] {
		if m, key := find(o.Object, pointer); m != nil {
			delete(m, key)
		}
	}
	return nil
}

// respect keeps the live values of the ignored fields in a sync: RespectIgnoreDifferences=true.
func (all ignored) respect(found sync.ReconciliationResult) {
	for i, target := range found.Target {
		if found.Live[i] == nil {
			continue
		}
		for _, pointer := range all[target.GetKind()] {
			to, key := find(target.Object, pointer)
			if to == nil {
				continue
			}
			delete(to, key)
			if from, _ := find(found.Live[i].Object, pointer); from != nil && from[key] != nil {
				to[key] = runtime.DeepCopyJSONValue(from[key])
			}
		}
	}
}

// find returns the map that contains the last key of a JSON pointer; nil if the path does not exist.
func find(o any, pointer string) (in map[string]any, key string) {
	keys := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i := range keys {
		keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(keys[i])
	}
	last := len(keys) - 1
	for _, key := range keys[:last] {
		switch at := o.(type) {
		case map[string]any:
			o = at[key]
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n >= len(at) {
				return nil, ""
			}
			o = at[n]
		}
	}
	in, _ = o.(map[string]any)
	return in, keys[last]
}
