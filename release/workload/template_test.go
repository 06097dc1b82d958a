package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type named string

func (n named) String() string { return string(n) }

// templated returns a workload whose pod template has these labels, besides app, and annotations.
func templated(kind Kind, labels, annotations map[string]any) *unstructured.Unstructured {
	all := map[string]any{"app": "web"}
	for name, value := range labels {
		all[name] = value
	}
	metadata := map[string]any{"labels": all}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": kind.Resource.GroupVersion().String(),
		"kind": kind.Kind, "spec": map[string]any{"template": map[string]any{"metadata": metadata,
			"spec": map[string]any{"nodeName": "a"}}}}}
}

// A template with the label that its own controller ignores is the same version; any other label makes new pods.
func TestTemplateOf_LeavesOut_WhatItsControllerIgnores(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds {
		plain := TemplateOf(templated(k, nil, nil))
		for name := range owned["labels"] {
			same := k.Kind == "Deployment" && name == "pod-template-hash"
			got := TemplateOf(templated(k, map[string]any{name: "x"}, nil))
			if same {
				require.Equal(t, plain, got, "%s %s", k.Name(), name)
			} else {
				require.NotEqual(t, plain, got, "%s %s", k.Name(), name)
			}
		}
	}
}

func TestWithoutOwned_KeepsChoicesOfPeople(t *testing.T) {
	t.Parallel()
	template := TemplateOf(templated(ByWord("deployment"),
		map[string]any{"controller-revision-hash": "x", "statefulset.kubernetes.io/pod-name": "web-0",
			"batch.kubernetes.io/job-name": "job", "istio.io/rev": "stable", "version": "v1",
			"apps.kubernetes.io/pod-index": "0"},
		map[string]any{"kubectl.kubernetes.io/restartedAt": "now", "sidecar.istio.io/status": "{}",
			"cni.projectcalico.org/podIP": "10.0.0.1"}))
	was := TemplateOf(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": template}}})
	selector := map[string]any{"matchLabels": map[string]any{"app": "web", "apps.kubernetes.io/pod-index": "0"},
		"matchExpressions": []any{map[string]any{"key": "controller-revision-hash", "operator": "Exists"}}}
	require.Equal(t, map[string]any{"spec": map[string]any{"nodeName": "a"}, "metadata": map[string]any{
		"labels": map[string]any{"app": "web", "istio.io/rev": "stable", "version": "v1",
			"apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "x"},
		"annotations": map[string]any{"kubectl.kubernetes.io/restartedAt": "now", "sidecar.istio.io/status": "{}"}}},
		WithoutOwned(template, selector), "what the selector names stays too")
	require.Equal(t, was, template, "the argument is left unchanged")
	require.Equal(t, map[string]any{"spec": "x"}, WithoutOwned(map[string]any{"spec": "x",
		"metadata": map[string]any{"labels": map[string]any{"pod-template-hash": "x"}}}, nil))
}

func TestOwnedNotice(t *testing.T) {
	t.Parallel()
	k := ByWord("deployment")
	require.Empty(t, OwnedNotice(named("web"), templated(k, nil, map[string]any{"team": "shop"})))
	require.Equal(t, "web: its pod template has pod-template-hash (set by the controller of a Deployment or CloneSet)"+
		", batch.kubernetes.io/job-completion-index (set by the controller of a Job), which controllers set on pods "+
		"themselves: it was probably copied from a pod or a ReplicaSet. The release goes on without it; remove it "+
		"from the template", OwnedNotice(named("web"), templated(k, map[string]any{"pod-template-hash": "x"},
		map[string]any{"batch.kubernetes.io/job-completion-index": "1"})))
}
