package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// The annotation is what a release has saved only if the label names that release: kubectl rollout undo restores
// annotations, but keeps labels.
func TestSavedOn_IgnoresCopyFromUndo(t *testing.T) {
	t.Parallel()
	const ours, before = "rollout/default/shop/web@2", "rollout/default/shop/web@1"
	mark := rollout.Saved{Claim: ours}.Mark()
	saved := func(claim string) string { return rollout.Saved{Name: "web", Claim: claim}.String() }
	for _, c := range []struct {
		reason, label, text, claim string
		believed                   bool
	}{
		{"our own", mark, saved(ours), ours, true},
		{"our own, frozen: the claim was released", mark, saved(ours), "", true},
		{"our own, which the next release rolls back", mark, saved(ours), "rollout/default/shop/web@3", true},
		{"of an earlier version of Slipway, which names no owner", workload.LabelClaimedValue, saved(ours), ours,
			true},
		{"an undo has restored the annotation of the previous release", mark, saved(before), before, false},
		{"an undo has restored the annotation of a release that has released its claim", mark, saved(before), "",
			false},
		{"an undo after the end", "", saved(before), before, false},
		{"a user has forged it under our claim: it is returned, so that the reader refuses it", mark,
			`{"settings":{"/spec/template":"theirs"}}`, ours, true},
		{"it is malformed: it is returned, so that the reader reports it", mark, `{`, ours, true},
		{"nothing is saved", mark, "", ours, false},
	} {
		got := rollout.SavedOn(map[string]string{workload.LabelRollout: c.label},
			map[string]string{workload.AnnotationRollout: c.text, workload.AnnotationClaimedBy: c.claim})
		want := map[bool]string{true: c.text}[c.believed]
		require.Equal(t, want, got, c.reason)
	}
}
