package workload_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// In these tests the activities get requests that no preflight check has seen, as a centre that does not check sends
// them.

// strict makes the worker use a policy.
func (b *bench) strict(policy podpolicy.Policy) {
	b.t.Helper()
	b.use(b.config, workload.Options{Policy: policy})
}

// ruled is a policy with the preset baseline and a rule of each kind that a change can violate.
var ruled = podpolicy.Policy{Preset: podpolicy.Baseline,
	Lists: podpolicy.Lists{ImagePrefixes: []string{"x"}, Secrets: []string{}, ServiceAccounts: []string{}}}

// privileged makes the pods of a Deployment share the processes of their node.
func privileged(d *appsv1.Deployment) { d.Spec.Template.Spec.HostPID = true }

// beginFails claims the workload, and returns why that failed.
func (r *releasing) beginFails() error {
	r.b.t.Helper()
	return r.call(activityBegin, rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change},
		&r.begun)
}

// requireRefused checks that an activity was refused by a rule and wrote nothing.
func (r *releasing) requireRefused(err error, rule string, writes int) string {
	r.b.t.Helper()
	message := requireFailure(r.b.t, err, failure.Refused).Message()
	require.Contains(r.b.t, message, "(rule "+rule+")")
	require.Equal(r.b.t, writes, r.b.realWrites(), "nothing is written")
	return message
}

func TestBegin_IsRefused_ByPartyPolicy(t *testing.T) {
	patch := func(spec string) strategy.Change {
		return strategy.Change{TemplatePatch: json.RawMessage(`{"spec":` + spec + `}`)}
	}
	app := func(fields string) strategy.Change { return patch(`{"containers":[{"name":"app",` + fields + `}]}`) }
	changes := map[string]strategy.Change{
		"baseline.hostNamespaces":             patch(`{"hostPID":true}`),
		"baseline.hostPathVolumes":            patch(`{"volumes":[{"name":"v","hostPath":{"path":"/"}}]}`),
		"baseline.privileged":                 app(`"securityContext":{"privileged":true}`),
		"baseline.hostProbesAndHostLifecycle": app(`"livenessProbe":{"httpGet":{"host":"169.254.169.254","port":80}}`),
		"secrets.allowed":                     app(`"envFrom":[{"secretRef":{"name":"db"}}]`),
		"serviceAccounts.allowed":             patch(`{"serviceAccountName":"admin"}`),
		"images.allowedPrefixes":              {Images: map[string]string{"app": "evil.example/x:1"}},
	}
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			b := newBench(t)
			b.strict(ruled)
			b.deployment("web", 2, nil)
			b.settled(web(), 2)
			before := b.state(web())
			for rule, change := range changes {
				r := b.release("web", style, "")
				r.change = change
				writes := b.realWrites()
				refusals := r.preflight().Refusals
				require.Len(t, refusals, 1, rule)
				require.Contains(t, refusals[0].Reason, "(rule "+rule+")")
				r.requireRefused(r.beginFails(), rule, writes)
			}
			require.Equal(t, before, b.state(web()))

			b.strict(podpolicy.Policy{NoTemplatePatch: true})
			r := b.release("web", style, "")
			r.change = patch(`{"terminationGracePeriodSeconds":7}`)
			require.Contains(t, r.preflight().Refusals[0].Reason, "(rule templatePatch)")
			r.requireRefused(r.beginFails(), "templatePatch", b.realWrites())
			require.Equal(t, before, b.state(web()))
		})
	}
}

// A release of a workload with privileges goes on under a policy that forbids them, in both directions.
func TestRollout_KeepsWhatLiveTemplateHas_UnderPartyPolicy(t *testing.T) {
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			b := newBench(t)
			b.strict(podpolicy.Policy{Preset: podpolicy.Restricted})
			b.deployment("web", 2, privileged)
			b.settled(web(), 2)
			r := b.release("web", style, "x:new")
			r.begin()
			r.move(1, "50%")
			r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
			require.Contains(t, b.state(web()).spec, `"hostPID":true`)
			require.Contains(t, b.state(web()).spec, `"x:good"`)

			r = b.release("web", style, "")
			r.change = strategy.Change{TemplatePatch: json.RawMessage(`{"spec":{"hostPID":null}}`)}
			r.begin()
			r.move(1, "50%")
			r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
			require.Contains(t, b.state(web()).spec, `"hostPID":true`, "the way back is not judged")
		})
	}
}

// formerly is a Deployment whose earlier pod template, which its cluster keeps, has privileges.
func (b *bench) formerly() (earlier strategy.Revision) {
	b.t.Helper()
	b.deployment("web", 2, privileged)
	b.settled(web(), 2)
	earlier = strategy.Revision{Template: b.digest(web())}
	b.merge(web(), `{"spec":{"template":{"spec":{"hostPID":null,"containers":[{"name":"app","image":"x:second"}]}}}}`)
	b.versioned(web(), "x:second", 2)
	return earlier
}

// An undo returns to an earlier template, which is judged, also under a Rollout object.
func TestUndo_IsRefused_ByPartyPolicy(t *testing.T) {
	b := newBench(t)
	b.strict(podpolicy.Policy{Preset: podpolicy.Baseline})
	earlier := b.formerly()
	for name, change := range map[string]strategy.Change{
		"by the API": {Revision: &earlier},
		"under a Rollout object": {Revision: &earlier,
			Declared: &strategy.Declared{Template: earlier.Template}},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.release("web", strategy.StylePartition, "")
			r.change = change
			writes := b.realWrites()
			refusals := r.preflight().Refusals
			require.Len(t, refusals, 1)
			require.Equal(t, "toRevision", refusals[0].Field)
			message := r.requireRefused(r.beginFails(), "baseline.hostNamespaces", writes)
			require.Contains(t, message, "This is an earlier version: to return to it, ask the party to allow that in "+
				"--release-policy-file of its worker")
			require.Equal(t, message, refusals[0].Reason)
			first := r.moveRequest(1, "100%") // begun by the same write
			first.Native, first.Settle = true, false
			_, err := b.acts.BeginMoving(t.Context(), rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(),
				Change: r.change}, func(rollout.BeginResult) *rollout.MoveRequest { return &first })
			require.ErrorContains(t, err, "(rule baseline.hostNamespaces)")
			require.Equal(t, writes, b.realWrites(), "nothing is written")
		})
	}
}

// A retry after drift sets the release's template again, which the party's policy of that moment judges. The way back is
// not judged.
func TestOverwriteOfDrift_IsRefused_ByPartyPolicy(t *testing.T) {
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			b := newBench(t)
			b.deployment("web", 2, nil)
			b.settled(web(), 2)
			r := b.release("web", style, "evil.example/x:new")
			r.begin()
			r.move(1, "50%")
			b.strict(ruled)
			b.merge(web(), `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"x:other"}]}}}}`)
			again := r.moveRequest(1, "50%")
			again.OverwriteDrift = true
			require.Contains(t, r.moveFails(again, failure.Refused).Message(), "(rule images.allowedPrefixes)")
			require.Contains(t, b.state(web()).spec, `"x:other"`, "the other client's template stays")
			back := r.finishRequest(rollout.FinishResumeAndRelease, rollout.SideStable)
			back.OverwriteDrift = true
			require.NoError(t, r.call(activityFinish, back, &rollout.MoveResult{}))
			require.Contains(t, b.state(web()).spec, `"x:good"`)
		})
	}
}

// The metadata that a release adds to the pods of an extra workload can switch AppArmor off, too.
func TestBegin_IsRefused_ByPartyPolicy_ForAddedMetadata(t *testing.T) {
	b := newBench(t)
	b.strict(podpolicy.Policy{Preset: podpolicy.Baseline})
	b.deployment("web", 2, nil)
	b.settled(web(), 2)
	r := b.release("web", strategy.StyleCanary, "x:new")
	r.metadata = &strategy.PodMetadata{Annotations: map[string]string{
		"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}}
	refusals := r.preflight().Refusals
	require.Len(t, refusals, 1)
	require.Contains(t, refusals[0].Reason, "(rule baseline.appArmorProfile)")
	writes := b.realWrites()
	r.requireRefused(r.beginFails(), "baseline.appArmorProfile", writes)
}

// RESTORE returns to an earlier template, which is judged.
func TestRestoreOperation_IsRefused_ByPartyPolicy(t *testing.T) {
	b := newBench(t)
	b.strict(podpolicy.Policy{Preset: podpolicy.Baseline})
	earlier := b.formerly()
	for _, method := range []plan.Method{plan.Parallel, plan.Sequential} {
		req := b.request(web(), plan.Restore, method)
		req.Restore = &plan.Restoration{Task: "t0", Template: &revision.Revision{Template: earlier.Template}}
		before := b.state(web())
		checked, err := b.acts.Preflight(t.Context(), operation.PreflightRequest{Requests: []operation.Request{req}})
		require.NoError(t, err)
		require.Len(t, checked.Refusals, 1)
		message := b.fails(req, failure.Refused).Message()
		require.Equal(t, message, checked.Refusals[0].Reason)
		require.Contains(t, message, "(rule baseline.hostNamespaces). This is an earlier version: to return to it, ask "+
			"the party to allow that")
		require.Equal(t, before, b.state(web()), "nothing is written")
	}
	b.strict(podpolicy.Policy{})
	req := b.request(web(), plan.Restore, plan.Parallel)
	req.Restore = &plan.Restoration{Task: "t0", Template: &revision.Revision{Template: earlier.Template}}
	b.must(req)
	require.Contains(t, b.state(web()).spec, `"hostPID":true`, "the party allows it")
}
