package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// What a release has left on an object names the object: on another one it is a copy, and counts for nothing.
func TestAnnotationsOf_LeavesOut_WhatCopyHas(t *testing.T) {
	t.Parallel()
	saved := rollout.Saved{UID: "one", Name: "web"}.String()
	for _, c := range []struct {
		reason, uid, name, text string
		copied                  bool
	}{
		{"the object itself", "one", workload.AnnotationRollout, saved, false},
		{"another object", "two", workload.AnnotationRollout, saved, true},
		{"an operation's original on another object", "two", workload.AnnotationOriginal, `{"uid":"one"}`, true},
		{"an earlier version of Slipway names no object", "two", workload.AnnotationRollout, `{"name":"web"}`, false},
		{"it is malformed: the reader reports it", "two", workload.AnnotationRollout, `{`, false},
		{"an object that is not stored yet", "", workload.AnnotationRollout, saved, false},
	} {
		o := &metav1.ObjectMeta{UID: types.UID(c.uid), Annotations: map[string]string{c.name: c.text,
			workload.AnnotationClaimedBy: "rollout/default/shop/web@1", workload.AnnotationReplicas: "3",
			"team": "shop"}}
		require.Equal(t, c.copied, rollout.IsCopy(o), c.reason)
		left := rollout.AnnotationsOf(o)
		require.Equal(t, c.copied, left[workload.AnnotationClaimedBy] == "", c.reason)
		require.Equal(t, "3", left[workload.AnnotationReplicas], "%s: a stopped workload's size is its own", c.reason)
		require.Equal(t, "shop", left["team"], c.reason)
		require.Len(t, o.Annotations, 4, "the object is left unchanged")
	}
}
