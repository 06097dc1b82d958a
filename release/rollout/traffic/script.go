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
	KindVirtualService  = "VirtualService"
	KindDestinationRule = "DestinationRule"
	GroupIstio          = "networking.istio.io"
)

// DefinesSubsets reports whether a custom object is Istio's DestinationRule: it sends no requests, but defines what
// other routes send them to.
func DefinesSubsets(ref strategy.ObjectRef) bool {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return group == GroupIstio && ref.Kind == KindDestinationRule
}

// OfAnotherHost reports whether a custom object is a DestinationRule of another host than the stable Service. Releases
// with a canary Service need none: a VirtualService sends requests to that Service. Without one they need the subset.
func OfAnotherHost(ref strategy.ObjectRef, original Object, pair ServicePair) bool {
	host, _, _ := strings.Cut(jsonpatch.DigString(original, "spec", "host"), ".")
	return DefinesSubsets(ref) && !pair.Same() && host != pair.Stable
}

// ScriptsConfigMap is the name of the ConfigMaps whose scripts have priority over the built-in ones: the
// administrator's, in the namespace of the worker, and a tenant's, in the namespace of the workload. A tenant's is used
// only where the worker's settings say so (Reach), since the worker writes what the script returns.
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
	if group == GroupIstio && (ref.Kind == KindVirtualService || ref.Kind == KindDestinationRule) {
		s.File = ref.Kind
	}
	return s
}

// BuiltIn returns the source of the built-in script, "" if there is none.
func (s Script) BuiltIn() string {
	source, _ := builtIn.ReadFile(s.File + ".lua")
	return string(source)
}

// FoundScript is the text of a script; Name is for messages. Tenant is true if it is from the namespace of the
// workload, BuiltIn if it is part of the program.
type FoundScript struct {
	Name, Source    string
	Tenant, BuiltIn bool
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

// IngressOutput reads what a script for a class of Ingress returned: the annotations of the canary, made from those of
// the stable Ingress. It fails with failure.Refused if the script changes one that it may not change. A script may
// leave out what tools mark the stable Ingress with, since the canary is another object; a tenant's may not leave out
// what protects the stable Ingress.
func IngressOutput(script FoundScript, stable Object, raw []byte) (map[string]string, error) {
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil || out == nil {
		return nil, refuse("script %s must return a table of annotations", script.Name)
	}
	annotations := map[string]string{}
	for key, value := range out {
		switch v := value.(type) {
		case string:
			annotations[key] = v
		case bool, float64:
			annotations[key] = fmt.Sprint(v)
		default:
			return nil, refuse("script %s returned the annotation %s, which is not a string", script.Name, key)
		}
	}
	for _, key := range changedKeys(ownAnnotations(stable), annotations) {
		if _, kept := annotations[key]; (kept || !protected(key)) && script.forbids(key, true) {
			return nil, script.refuseKey("annotations", key)
		}
	}
	return annotations, nil
}

// refuseKey is the refusal of a script that changes a label or an annotation that it may not change.
func (s FoundScript) refuseKey(part, key string) error {
	why := "no script may change"
	if !protected(key) {
		why = "a script from the namespace of the workload may not change on an Ingress"
	}
	return refuse("script %s changes %s.%s, which %s: return it as it was", s.Name, part, key, why)
}

// Custom derives a custom object from what its script returned: a table like data. Parts that are left out are
// unchanged.
func Custom(script FoundScript, raw []byte) func(original Object) (Object, []string, error) {
	return func(original Object) (Object, []string, error) {
		var out map[string]any
		if err := json.Unmarshal(raw, &out); err != nil || out == nil {
			return nil, nil, refuse("script %s must return a table with spec, labels and annotations", script.Name)
		}
		for part := range out {
			if part != "spec" && part != "labels" && part != "annotations" {
				return nil, nil, refuse("script %s returned %s in addition to spec, labels and annotations",
					script.Name, part)
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
// changes. It fails with failure.Refused if the script changes one that it may not change.
func putMetadata(o Object, script FoundScript, part string, returned map[string]any) (paths []string, err error) {
	was, wanted := digStrings(o, "metadata", part), map[string]string{}
	if part == "annotations" {
		was = ownAnnotations(o)
	}
	for key, value := range returned {
		text, ok := value.(string)
		if !ok {
			return nil, refuse("script %s returned %s.%s, which is not a string", script.Name, part, key)
		}
		wanted[key] = text
	}
	ingress := jsonpatch.DigString(o, "kind") == "Ingress"
	for _, key := range changedKeys(was, wanted) {
		if script.forbids(key, ingress) {
			return nil, script.refuseKey(part, key)
		}
		place := "/metadata/" + part + "/" + jsonpatch.Escape(key)
		paths = append(paths, place)
		if text, stays := wanted[key]; stays {
			jsonpatch.Put(o, place, text)
		} else {
			jsonpatch.Drop(o, place)
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
