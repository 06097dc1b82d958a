package workloadops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// borrowable are all settings that an operation may borrow, of any kind of workload.
var borrowable = []string{workloadops.PathDeploymentUnavailable, workloadops.PathDeploymentSurge,
	workloadops.PathUpdateStrategy,
	workloadops.PathUpdateUnavailable, workloadops.PathUpdateSurge}

func TestParseHolder_ReadsWhatStringWrites(t *testing.T) {
	t.Parallel()
	engine := workloadops.Engine{UID: "5f0c", Name: "slipway"}
	for claim, c := range map[string]struct {
		reason string
		holder workloadops.Holder
	}{
		"rollout/default/shop/web@run-1@slipway/5f0c": {"a claim names workflow, run and engine",
			workloadops.Holder{WorkflowID: "rollout/default/shop/web", RunID: "run-1", Engine: engine}},
		"trafficrouting/shop/mse@@slipway/5f0c": {"a TrafficRouting's has no run",
			workloadops.Holder{WorkflowID: "trafficrouting/shop/mse", Engine: engine}},
		"task/t1/1-111@run-1": {"earlier builds wrote no engine",
			workloadops.Holder{WorkflowID: "task/t1/1-111", RunID: "run-1"}},
	} {
		require.Equal(t, c.holder, workloadops.ParseHolder(claim), c.reason)
		require.Equal(t, claim, c.holder.String(), c.reason)
	}
	for claim, c := range map[string]struct {
		reason string
		holder workloadops.Holder
	}{
		"by-hand":     {"a user may write any text", workloadops.Holder{WorkflowID: "by-hand"}},
		"me@example/": {"an engine follows a run", workloadops.Holder{WorkflowID: "me", RunID: "example/"}},
		"a@b@c":       {"an engine has a UID", workloadops.Holder{WorkflowID: "a@b", RunID: "c"}},
		"a@b@c/":      {"the UID is not empty", workloadops.Holder{WorkflowID: "a@b", RunID: "c/"}},
		"":            {"no release holds it", workloadops.Holder{}},
	} {
		require.Equal(t, c.holder, workloadops.ParseHolder(claim), c.reason)
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
		require.Equal(t, c.may, workloadops.MayTakeOver(c.ours, c.takeOver, c.current), c.reason)
	}
}

func TestFailClaimed_NamesEngine_OnlyIfForeign(t *testing.T) {
	t.Parallel()
	w := catalog.Workload{Namespace: "shop",
		WorkloadRef: catalog.WorkloadRef{APIVersion: workloadops.APIVersion, Kind: workloadops.KindDeployment,
			Name: "web"}}
	refused := workloadops.FailClaimed(w, "w@2@a/uid-a", "rollout/default/shop/web@1@b/uid-b")
	require.Equal(t, failure.Claimed, refused.Failure.Kind)
	require.Contains(t, refused.Failure.Message, "is being released by rollout/default/shop/web of engine b: ")
	refused = workloadops.FailClaimed(w, "w@2@a/uid-a", "rollout/default/shop/web@1@a/uid-a")
	require.Contains(t, refused.Failure.Message, "is being released by rollout/default/shop/web: ",
		"the release's own engine is not named")
}

func TestParseOriginal_RefusesFieldThatOperationsDoNotBorrow(t *testing.T) {
	t.Parallel()
	_, err := workloadops.ParseOriginal(
		`{"operation":"RESTART","borrowed":[{"path":"/spec/template","own":{},"lent":null}]}`, borrowable)
	require.EqualError(t, err, "another client added /spec/template, which no operation borrows")
}
