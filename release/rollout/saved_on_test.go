package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// What stands on a workload is what a release has saved only if the label says so: it stays as it is when an undo puts other annotations there.
func TestWhatIsSavedIsToldFromACopy(t *testing.T) {
	t.Parallel()
	const ours, before = "rollout/default/shop/web@2", "rollout/default/shop/web@1"
	mark := rollout.Saved{Claim: ours}.Mark()
	saved := func(claim string) string { return rollout.Saved{Name: "web", Claim: claim}.String() }
	for _, c := range []struct {
		reason, label, text, claim string
		believed                   bool
	}{
		{"our own", mark, saved(ours), ours, true},
		{"our own, frozen: the claim was given back", mark, saved(ours), "", true},
		{"our own, which the next release brings home", mark, saved(ours), "rollout/default/shop/web@3", true},
		{"of an earlier version of Slipway, which says nothing of whose it is", workloadops.LabelClaimedValue, saved(ours), ours, true},
		{"an undo has brought the release before back", mark, saved(before), before, false},
		{"an undo has brought what was saved back, of a release that gave its claim back", mark, saved(before), "", false},
		{"an undo behind the end", "", saved(before), before, false},
		{"somebody has forged it under our claim: that is looked at, and refused", mark, `{"settings":{"/spec/template":"theirs"}}`, ours, true},
		{"it cannot be read: that is told", mark, `{`, ours, true},
		{"nothing is saved", mark, "", ours, false},
	} {
		got := rollout.SavedOn(map[string]string{workloadops.LabelRollout: c.label},
			map[string]string{rollout.AnnotationSaved: c.text, workloadops.AnnotationClaimedBy: c.claim})
		want := map[bool]string{true: c.text}[c.believed]
		require.Equal(t, want, got, c.reason)
	}
}
