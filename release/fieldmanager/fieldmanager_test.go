package fieldmanager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/fieldmanager"
)

func TestLastOther_FindsLastOtherManager(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entry := func(manager, subresource, fields string, minutes int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute))
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &at,
			FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const strategy, template = `{"f:spec":{"f:updateStrategy":{"f:partition":{}}}}`,
		`{"f:spec":{"f:template":{"f:spec":{"f:containers":{}}}}}`
	for _, tc := range []struct {
		reason  string
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		{"the owner of the field", []metav1.ManagedFieldsEntry{entry("helm", "", strategy, 1),
			entry("kubectl-edit", "", template, 2)}, "helm"},
		{"the last of several", []metav1.ManagedFieldsEntry{entry("helm", "", strategy, 2),
			entry("kubectl-edit", "", strategy, 1)}, "helm"},
		{"Slipway writes there as well", []metav1.ManagedFieldsEntry{entry("helm", "", strategy, 1),
			entry(fieldmanager.Slipway, "", strategy, 2)}, "helm"},
		{"a client that removed the field does not own it",
			[]metav1.ManagedFieldsEntry{entry("kubectl-patch", "", template, 1),
				entry(fieldmanager.Slipway, "", strategy, 2)}, "kubectl-patch"},
		{"an autoscaler writes through a subresource",
			[]metav1.ManagedFieldsEntry{entry("autoscaler", "scale", strategy, 1)}, "autoscaler"},
		{"a controller that only writes the status",
			[]metav1.ManagedFieldsEntry{entry("kube-controller-manager", "status", strategy, 1),
				entry("kube-controller-manager", "", `{"f:metadata":{"f:annotations":{"f:revision":{}}}}`, 2)}, ""},
		{"there is no other manager", []metav1.ManagedFieldsEntry{entry(fieldmanager.Slipway, "", strategy, 1),
			{Manager: "old"}}, ""},
	} {
		got, _ := fieldmanager.LastOther(&metav1.ObjectMeta{ManagedFields: tc.entries}, "/spec/updateStrategy")
		require.Equal(t, tc.want, got, tc.reason)
	}
}

func TestWrittenByOther(t *testing.T) {
	t.Parallel()
	const claim = `{"f:metadata":{"f:annotations":{".":{},"f:slipway.io/claimed-by":{}}}}`
	o := &metav1.ObjectMeta{}
	by := func(manager, fields string) bool {
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "none"}, {Manager: manager,
			FieldsV1: metav1.NewFieldsV1(fields)}}
		return fieldmanager.WrittenByOther(o, "slipway.io/claimed-by")
	}
	require.True(t, by("kubectl-replace", claim))
	require.False(t, by(fieldmanager.Slipway, claim), "the engine wrote it")
	require.False(t, by("kubectl-replace", `{"f:metadata":{"f:annotations":{"f:slipway.io/claimed":{}}}}`),
		"it owns another")
}
