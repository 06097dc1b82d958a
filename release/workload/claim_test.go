package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

func TestParseHolder_ReadsWhatStringWrites(t *testing.T) {
	t.Parallel()
	engine := workload.Engine{UID: "5f0c", Name: "slipway"}
	for claim, c := range map[string]struct {
		reason string
		holder workload.Holder
	}{
		"rollout/default/shop/web@run-1@slipway/5f0c": {"a claim names workflow, run and engine",
			workload.Holder{WorkflowID: "rollout/default/shop/web", RunID: "run-1", Engine: engine}},
		"trafficrouting/shop/mse@@slipway/5f0c": {"a TrafficRouting's has no run",
			workload.Holder{WorkflowID: "trafficrouting/shop/mse", Engine: engine}},
		"task/t1/1-111@run-1": {"earlier builds wrote no engine",
			workload.Holder{WorkflowID: "task/t1/1-111", RunID: "run-1"}},
	} {
		require.Equal(t, c.holder, workload.ParseHolder(claim), c.reason)
		require.Equal(t, claim, c.holder.String(), c.reason)
	}
	for claim, c := range map[string]struct {
		reason string
		holder workload.Holder
	}{
		"by-hand":     {"a user may write any text", workload.Holder{WorkflowID: "by-hand"}},
		"me@example/": {"an engine follows a run", workload.Holder{WorkflowID: "me", RunID: "example/"}},
		"a@b@c":       {"an engine has a UID", workload.Holder{WorkflowID: "a@b", RunID: "c"}},
		"a@b@c/":      {"the UID is not empty", workload.Holder{WorkflowID: "a@b", RunID: "c/"}},
		"":            {"no release holds it", workload.Holder{}},
	} {
		require.Equal(t, c.holder, workload.ParseHolder(claim), c.reason)
	}
}

func TestMayTakeOver_OnlyNamedDeadClaimOfSameEngine(t *testing.T) {
	t.Parallel()
	const ours, dead, theirs, old = "w@2@a/uid-a", "w@1@a/uid-a", "w@1@b/uid-b", "w@1"
	for _, c := range []struct {
		reason                  string
		ours, takeOver, current string
		may                     bool
	}{
		{"the dead claim that the request names", ours, dead, dead, true},
		{"a claim that the request does not name", ours, dead, "w@3@a/uid-a", false},
		{"the request names no claim", ours, "", "", false},
		{"another engine's claim, even if it is named", ours, theirs, theirs, false},
		{"an earlier build's claim: its engine is unknown", ours, old, old, true},
		{"a release of an earlier build relies on the centre's answer", old, dead, dead, true},
		{"a renamed engine is the same engine", ours, "w@1@former/uid-a", "w@1@former/uid-a", true},
	} {
		require.Equal(t, c.may, workload.MayTakeOver(c.ours, c.takeOver, c.current), c.reason)
	}
}

func TestFailClaimed_NamesEngine_OnlyIfForeign(t *testing.T) {
	t.Parallel()
	w := catalog.Workload{Namespace: "shop",
		WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}
	refused := workload.FailClaimed(w, "w@2@a/uid-a", "rollout/default/shop/web@1@b/uid-b")
	require.Equal(t, failure.Claimed, refused.Failure.Kind)
	require.Contains(t, refused.Failure.Message, "is being released by rollout/default/shop/web of engine b: ")
	refused = workload.FailClaimed(w, "w@2@a/uid-a", "rollout/default/shop/web@1@a/uid-a")
	require.Contains(t, refused.Failure.Message, "is being released by rollout/default/shop/web: ",
		"the release's own engine is not named")
}
