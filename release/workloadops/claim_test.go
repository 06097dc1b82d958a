package workloadops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// borrowable are all settings that an operation may borrow, of whatever kind.
var borrowable = []string{workloadops.PathDeploymentUnavailable, workloadops.PathDeploymentSurge, workloadops.PathUpdateStrategy,
	workloadops.PathUpdateUnavailable, workloadops.PathUpdateSurge}

func TestAClaimIsReadAsItWasWritten(t *testing.T) {
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
		"task/t1/1-111@run-1": {"an earlier build named no engine", workloadops.Holder{WorkflowID: "task/t1/1-111", RunID: "run-1"}},
	} {
		require.Equal(t, c.holder, workloadops.ParseHolder(claim), c.reason)
		require.Equal(t, claim, c.holder.String(), c.reason)
	}
	for claim, c := range map[string]struct {
		reason string
		holder workloadops.Holder
	}{
		"somebody":    {"a person may write whatever they like", workloadops.Holder{WorkflowID: "somebody"}},
		"me@example/": {"an engine comes after a run", workloadops.Holder{WorkflowID: "me", RunID: "example/"}},
		"a@b@c":       {"and has a UID", workloadops.Holder{WorkflowID: "a@b", RunID: "c"}},
		"a@b@c/":      {"that is not empty", workloadops.Holder{WorkflowID: "a@b", RunID: "c/"}},
		"":            {"nobody holds it", workloadops.Holder{}},
	} {
		require.Equal(t, c.holder, workloadops.ParseHolder(claim), c.reason)
	}
}

func TestOnlyADeadClaimOfTheSameEngineIsTakenOver(t *testing.T) {
	t.Parallel()
	const ours, dead, theirs, old = "w@2@a/uid-a", "w@1@a/uid-a", "w@1@b/uid-b", "w@1"
	for _, c := range []struct {
		reason                   string
		ours, takeOver, standing string
		may                      bool
	}{
		{"the dead claim that the request names", ours, dead, dead, true},
		{"another one than it names", ours, dead, "w@3@a/uid-a", false},
		{"none is named", ours, "", "", false},
		{"another engine's, even if it is named", ours, theirs, theirs, false},
		{"an earlier build's: nobody knows whose it is", ours, old, old, true},
		{"a release of an earlier build goes by what the centre says", old, dead, dead, true},
		{"an engine that was renamed is the same", ours, "w@1@former/uid-a", "w@1@former/uid-a", true},
	} {
		require.Equal(t, c.may, workloadops.MayTakeOver(c.ours, c.takeOver, c.standing), c.reason)
	}
}

func TestAnotherEnginesClaimIsToldWithItsName(t *testing.T) {
	t.Parallel()
	w := catalog.Workload{Namespace: "shop",
		WorkloadRef: catalog.WorkloadRef{APIVersion: workloadops.APIVersion, Kind: workloadops.KindDeployment, Name: "web"}}
	told := workloadops.Claimed(w, "w@2@a/uid-a", "rollout/default/shop/web@1@b/uid-b")
	require.Equal(t, failure.Claimed, told.Failure.Kind)
	require.Contains(t, told.Failure.Message, "is being released by rollout/default/shop/web of engine b: ")
	told = workloadops.Claimed(w, "w@2@a/uid-a", "rollout/default/shop/web@1@a/uid-a")
	require.Contains(t, told.Failure.Message, "is being released by rollout/default/shop/web: ", "one's own engine needs no name")
}

func TestAnOriginalIsFollowedWhereOperationsBorrowOnly(t *testing.T) {
	t.Parallel()
	_, err := workloadops.ParseOriginal(`{"operation":"RESTART","borrowed":[{"path":"/spec/template","own":{},"lent":null}]}`, borrowable)
	require.EqualError(t, err, "somebody has added /spec/template, which no operation borrows")
}
