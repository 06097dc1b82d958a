package main

import (
	"strconv"
	"strings"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ignored are the fields of an Application's ignoreDifferences, by kind, as JSON pointers. Argo CD has that outside of its library, as a normalizer.
type ignored map[string][]string

// Ignore takes one of them: ignoreDifferences with RespectIgnoreDifferences=true.
func (all ignored) Ignore(kind, pointer string) { all[kind] = append(all[kind], pointer) }

// Normalize takes them out of an object before it is compared.
func (all ignored) Normalize(o *unstructured.Unstructured) error {
	for _, pointer := range all[o.GetKind()] {
		if m, key := find(o.Object, pointer); m != nil {
			delete(m, key)
		}
	}
	return nil
}

// respect has a sync leave them as they are: RespectIgnoreDifferences=true.
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

// find is the map in which the last key of a JSON pointer stands, nil where the pointer leads nowhere.
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
