package traffic

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Names of Istio's objects.
const (
	KindVirtualService = "VirtualService"
	GroupIstio         = "networking.istio.io"
)

// ScriptsConfigMap is the name of the ConfigMap, in the workload's namespace, whose scripts have priority over the
// built-in ones. Scripts are in the namespace of the objects that they change: a user who may change those may write
// scripts for them, and for no others.
const ScriptsConfigMap = "slipway-traffic-scripts"

//go:embed *.lua
var builtIn embed.FS

// Script identifies a script: Key is its key in a ConfigMap, File is the built-in one, "" if there is none.
type Script struct {
	Key, File string
	// ReferenceFirst is true if a script of the cluster, where Kruise Rollouts keeps them, has priority over the
	// built-in one. It is true for classes of Ingress; for custom objects that script comes last.
	ReferenceFirst bool
}

// ingressFiles are the built-in scripts by class; higress reads the annotations of ingress-nginx.
var ingressFiles = map[string]string{"nginx": "nginx", "higress": "nginx", "mse": "mse", "aliyun-alb": "aliyun-alb"}

// IngressScript returns the script for a class of Ingress.
func IngressScript(class string) Script {
	return Script{Key: "lua.traffic.routing.ingress." + class, File: ingressFiles[class], ReferenceFirst: true}
}

// CustomScript returns the script for a kind of custom object.
func CustomScript(ref strategy.ObjectRef) Script {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	s := Script{Key: "lua.traffic.routing." + ref.Kind + "." + group}
	if group == GroupIstio && (ref.Kind == KindVirtualService || ref.Kind == "DestinationRule") {
		s.File = ref.Kind
	}
	return s
}

// BuiltIn returns the source of the built-in script, "" if there is none.
func (s Script) BuiltIn() string {
	source, _ := builtIn.ReadFile(s.File + ".lua")
	return string(source)
}

// Classes are the classes of Ingress that have a built-in script.
const Classes = "aliyun-alb, higress, mse, nginx"

// IngressInput returns the global obj of a script for a class of Ingress.
func IngressInput(stable Object, class string, pair ServicePair, asks strategy.Traffic) Object {
	weight := "-1"
	if asks.Weight != nil && len(asks.Matches) == 0 {
		weight = fmt.Sprint(*asks.Weight)
	}
	in := Object{
		"annotations": jsonpatch.Normalise(ownAnnotations(stable)), "weight": weight,
		"canaryService": pair.Canary, "stableService": pair.Stable, "class": class,
	}
	return withAsks(in, asks)
}

// CustomInput returns the global obj of a custom object's script. Without a weight, canaryWeight is -1 and stableWeight
// 101.
func CustomInput(original Object, pair ServicePair, asks strategy.Traffic) Object {
	canary := int64(-1)
	if asks.Weight != nil && len(asks.Matches) == 0 {
		canary = int64(*asks.Weight)
	}
	data := Object{
		"spec":        clone(jsonpatch.Dig(original, "spec")),
		"labels":      jsonpatch.Normalise(digStrings(original, "metadata", "labels")),
		"annotations": jsonpatch.Normalise(ownAnnotations(original)),
	}
	in := Object{
		"data": data, "namespace": jsonpatch.DigString(original, "metadata", "namespace"),
		"canaryWeight": canary, "stableWeight": 100 - canary, "canaryService": pair.Canary,
		"stableService": pair.Stable,
	}
	return withAsks(in, asks)
}

// withAsks adds matches and requestHeaderModifier, each only if requested.
func withAsks(in Object, asks strategy.Traffic) Object {
	if len(asks.Matches) > 0 {
		in["matches"] = jsonpatch.Normalise(asks.Matches)
	}
	if asks.RequestHeaderModifier != nil {
		in["requestHeaderModifier"] = jsonpatch.Normalise(asks.RequestHeaderModifier)
	}
	return in
}

// IngressOutput reads what a script for a class of Ingress returned: annotations.
func IngressOutput(script string, raw []byte) (map[string]string, error) {
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil || out == nil {
		return nil, refuse("script %s must return a table of annotations", script)
	}
	annotations := map[string]string{}
	for key, value := range out {
		switch v := value.(type) {
		case string:
			annotations[key] = v
		case bool, float64:
			annotations[key] = fmt.Sprint(v)
		default:
			return nil, refuse("script %s returned the annotation %s, which is not a string", script, key)
		}
	}
	return annotations, nil
}

// Custom derives a custom object from what its script returned: a table like data. Parts that are left out are
// unchanged.
func Custom(script string, raw []byte) func(original Object) (Object, []string, error) {
	return func(original Object) (Object, []string, error) {
		var out map[string]any
		if err := json.Unmarshal(raw, &out); err != nil || out == nil {
			return nil, nil, refuse("script %s must return a table with spec, labels and annotations", script)
		}
		for part := range out {
			if part != "spec" && part != "labels" && part != "annotations" {
				return nil, nil, refuse("script %s returned %s in addition to spec, labels and annotations", script,
					part)
			}
		}
		paths := []string{pathSpec}
		if spec, said := out["spec"]; said {
			jsonpatch.Put(original, pathSpec, jsonpatch.Normalise(spec))
		}
		for _, part := range []string{"labels", "annotations"} {
			if returned, said := out[part].(map[string]any); said {
				changed, err := putMetadata(original, script, part, returned)
				if err != nil {
					return nil, nil, err
				}
				paths = append(paths, changed...)
			}
		}
		return original, paths, nil
	}
}

// putMetadata makes the labels or annotations of an object what a script returned; paths are the places that it
// changes.
func putMetadata(o Object, script, part string, returned map[string]any) (paths []string, err error) {
	was := digStrings(o, "metadata", part)
	if part == "annotations" {
		was = ownAnnotations(o)
	}
	place := func(key string) string {
		path := "/metadata/" + part + "/" + jsonpatch.Escape(key)
		paths = append(paths, path)
		return path
	}
	for key, value := range returned {
		text, ok := value.(string)
		switch old, there := was[key]; {
		case !ok:
			return nil, refuse("script %s returned %s.%s, which is not a string", script, part, key)
		case reserved(key, text):
			return nil, refuse("script %s returned %s.%s, which a script may not change", script, part, key)
		case !there || old != text:
			jsonpatch.Put(o, place(key), text)
		}
	}
	for key := range was {
		if _, still := returned[key]; !still {
			jsonpatch.Drop(o, place(key))
		}
	}
	return paths, nil
}

// originalSpecOf returns the value of rollout.AnnotationOriginalSpec for a custom object; "" if another client has
// written one already.
func originalSpecOf(original Object) string {
	if _, there := annotationsOf(original)[rollout.AnnotationOriginalSpec]; there {
		return ""
	}
	labels := digStrings(original, "metadata", "labels")
	maps.DeleteFunc(labels, reserved)
	return string(jsonpatch.Encode(struct {
		Spec        any               `json:"spec,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}{jsonpatch.Dig(original, "spec"), labels, ownAnnotations(original)}))
}
