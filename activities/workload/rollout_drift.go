package workload

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
)

// edited says what somebody else has changed in the pod template, by whom and when, as far as the cluster tells: ": image of container app
// (x:9, was x:2), by kubectl-set at 2026-03-01T09:00:00Z".
func (t *rolloutJob) edited(l *snapshot) string {
	base := t.written(l)
	if base == nil {
		return ""
	}
	fields := pods.Edited(base, pods.Stripped(templateOf(l.object)))
	if fields == "" { // it is something else that has drifted
		return ""
	}
	manager, at := templateManager(l.object)
	if manager == "" {
		return ": " + fields
	}
	return fmt.Sprintf(": %s, by %s at %s", fields, manager, at.UTC().Format(time.RFC3339))
}

// written is the template that this rollout left on the workload: of an extra workload's partner the stable one; nil when it is not known
// any more.
func (t *rolloutJob) written(l *snapshot) map[string]any {
	saved := l.seen.Saved
	if saved == nil {
		return nil
	}
	digest := t.template
	if digest == "" || saved.Style == strategy.StyleCanary {
		digest = saved.StableTemplate
	}
	for _, r := range l.seen.Revisions {
		if r.Template == digest {
			return l.templates[r.Name]
		}
	}
	return nil
}

// templateManager is the field manager that wrote to the pod template last: the name of the tool, "kubectl-edit" for example.
func templateManager(o *unstructured.Unstructured) (name string, at metav1.Time) {
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource != "" || entry.FieldsV1 == nil || entry.Time == nil || entry.Time.Before(&at) {
			continue
		}
		var fields struct {
			Spec struct {
				Template map[string]any `json:"f:template"`
			} `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && len(fields.Spec.Template) > 0 {
			name, at = entry.Manager, *entry.Time
		}
	}
	return name, at
}
