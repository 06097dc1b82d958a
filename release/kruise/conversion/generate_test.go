package conversion_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/kruise/conversion"
)

const (
	alpha = "rollouts.kruise.io/v1alpha1"
	beta  = "rollouts.kruise.io/v1beta1"

	rollingStyle = "rollouts.kruise.io/rolling-style"
)

// maybe adds a field or leaves it out.
func maybe(t *rapid.T, object map[string]any, key string, draw func() any) {
	if rapid.Bool().Draw(t, key+" is there") {
		object[key] = draw()
	}
}

func one(t *rapid.T, what string, values ...any) any {
	return rapid.SampledFrom(values).Draw(t, what)
}

// drawRollout returns an object of a version with random parts, legal and illegal, some of which the version does not
// have.
func drawRollout(t *rapid.T, version string) *unstructured.Unstructured {
	metadata := map[string]any{"name": "echo", "namespace": "shop", "uid": "u", "generation": int64(3)}
	maybe(t, metadata, "annotations", func() any { return drawAnnotations(t) })
	maybe(t, metadata, "labels", func() any { return map[string]any{"team": "shop"} })
	object := map[string]any{"apiVersion": version, "kind": "Rollout", "metadata": metadata}
	maybe(t, object, "spec", func() any { return drawSpec(t, version) })
	maybe(t, object, "status", func() any {
		return map[string]any{"phase": one(t, "phase", "Healthy", "Progressing"), "currentStepIndex": int64(2),
			"currentStepState": "StepPaused",
			one(t, "status", "canaryStatus", "blueGreenStatus").(string): map[string]any{"nextStepIndex": int64(-1)},
			"slipway": map[string]any{"seq": int64(7)}}
	})
	return &unstructured.Unstructured{Object: object}
}

func drawAnnotations(t *rapid.T) map[string]any {
	out := map[string]any{"other": "text"}
	styles := []any{"", "canary", "Partition", "partition", "CANARY", "unknown"}
	maybe(t, out, rollingStyle, func() any { return one(t, "style", styles...) })
	maybe(t, out, "rollouts.kruise.io/rolling-type", func() any { return one(t, "type", styles...) })
	maybe(t, out, "rollouts.kruise.io/trafficrouting", func() any { return one(t, "routing", "", "a", "b") })
	maybe(t, out, "rollouts.kruise.io/rollout-id", func() any { return one(t, "id", "", "1", "2") })
	maybe(t, out, conversion.AnnotationAlpha, func() any {
		return one(t, "stale", "", "{}", "no JSON", `{"digest":"d","spec":{"strategy":{}}}`)
	})
	maybe(t, out, conversion.AnnotationBeta, func() any {
		return one(t, "stale", "", "{}", "no JSON", `{"digest":"d","spec":{"strategy":{}}}`)
	})
	return out
}

func drawSpec(t *rapid.T, version string) map[string]any {
	spec := map[string]any{}
	workload := map[string]any{"apiVersion": one(t, "version", "apps/v1", "apps.kruise.io/v1alpha1"),
		"kind": one(t, "kind", "Deployment", "StatefulSet"), "name": "echo"}
	if version == beta {
		maybe(t, spec, "workloadRef", func() any { return workload })
	} else {
		maybe(t, spec, "rolloutID", func() any { return one(t, "rolloutID", "", "1", "7") })
		maybe(t, spec, "objectRef", func() any {
			reference := map[string]any{}
			maybe(t, reference, "workloadRef", func() any { return workload })
			return reference
		})
	}
	maybe(t, spec, "disabled", func() any { return rapid.Bool().Draw(t, "disabled") })
	maybe(t, spec, "unknown", func() any { return 1.5 })
	maybe(t, spec, "strategy", func() any {
		strategy := map[string]any{}
		maybe(t, strategy, "paused", func() any { return rapid.Bool().Draw(t, "paused") })
		maybe(t, strategy, "canary", func() any { return drawBody(t, version) })
		if version == beta {
			maybe(t, strategy, "blueGreen", func() any { return drawBody(t, version) })
			maybe(t, strategy, "trafficRoutingRef", func() any { return one(t, "beside", "", "a", "c") })
		}
		return strategy
	})
	return spec
}

func drawBody(t *rapid.T, version string) map[string]any {
	body := map[string]any{}
	if version == beta {
		maybe(t, body, "enableExtraWorkloadForCanary", func() any { return rapid.Bool().Draw(t, "extra") })
		maybe(t, body, "trafficRoutingRef", func() any { return one(t, "within", "", "a", "d") })
	}
	maybe(t, body, "steps", func() any {
		steps := []any{}
		for i := range rapid.IntRange(0, 4).Draw(t, "steps") {
			steps = append(steps, drawStep(t, version, fmt.Sprint(i)))
		}
		return steps
	})
	maybe(t, body, "trafficRoutings", func() any {
		return []any{map[string]any{"service": "echo", "gracePeriodSeconds": int64(0),
			"ingress": map[string]any{"name": "echo"}}}
	})
	maybe(t, body, "failureThreshold", func() any { return one(t, "threshold", int64(0), "10%") })
	maybe(t, body, "patchPodTemplateMetadata", func() any { return map[string]any{"labels": map[string]any{"a": "b"}} })
	maybe(t, body, "disableGenerateCanaryService", func() any { return rapid.Bool().Draw(t, "service") })
	return body
}

func drawStep(t *rapid.T, version, n string) map[string]any {
	step := map[string]any{}
	if version == beta {
		maybe(t, step, "traffic", func() any {
			return one(t, "traffic"+n, "0%", "5%", "05%", "+5%", "100%", "5", "", "a%", "99999999999%")
		})
	} else {
		maybe(t, step, "weight", func() any {
			return one(t, "weight"+n, int64(-1), int64(0), int64(5), int64(100), int64(150))
		})
	}
	maybe(t, step, "replicas", func() any { return one(t, "replicas"+n, int64(1), "5%", "100%", "none") })
	maybe(t, step, "pause", func() any {
		return one(t, "pause"+n, map[string]any{}, map[string]any{"duration": int64(0)},
			map[string]any{"duration": map[string]any{}})
	})
	maybe(t, step, "requestHeaderModifier", func() any { return map[string]any{"remove": []any{"a"}} })
	maybe(t, step, "matches", func() any {
		matches := []any{}
		for range rapid.IntRange(0, 2).Draw(t, "matches"+n) {
			match := map[string]any{}
			maybe(t, match, "headers", func() any {
				return one(t, "headers"+n, []any{}, []any{map[string]any{"name": "a", "value": "b"}})
			})
			maybe(t, match, "path", func() any { return map[string]any{"value": "/" + n} })
			matches = append(matches, match)
		}
		return matches
	})
	return step
}
