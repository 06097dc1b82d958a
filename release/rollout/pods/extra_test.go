package pods

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// extraRun is a release with an extra Deployment, whose steps are executed in any order while another client scales the
// workload.
type extraRun struct {
	t *rapid.T
	// size is the workload's size; extra is the extra Deployment's size, -1 before it is created; left is the size that
	// the release gave it last.
	size, extra, left int32
	declared          bool
}

func (r *extraRun) seen() Observed {
	const claim = "rollout/default/shop/web@1"
	saved := &rollout.Saved{Name: "web", Claim: claim, Style: strategy.StyleCanary, Stable: "old",
		StableTemplate: "old", CanaryWorkload: "web-canary",
		Settings: map[string]json.RawMessage{}}
	seen := Observed{Saved: saved, UID: "uid", Template: "old", Expected: "new",
		Revisions: []Revision{{Name: "old", Hash: "old", Template: "old", HasCounts: true, Desired: r.size,
			Total: r.size, Ready: r.size, Available: r.size}}}
	seen.Claim, seen.Replicas, seen.Total, seen.Updated, seen.Ready, seen.Available = claim, r.size, r.size, r.size,
		r.size, r.size
	seen.Settings = map[string]json.RawMessage{}
	if r.declared {
		saved.Declared, seen.Declared, seen.Template = "new", "new", "new"
		seen.Settings[pathPaused] = json.RawMessage("true")
	}
	if r.extra >= 0 {
		seen.Extra = &Extra{Name: "web-canary", UID: "extra", CanaryOf: strategy.CanaryOf("web"), Template: "new",
			Hash: "new", RecordedSize: r.left}
		seen.Extra.Replicas, seen.Extra.Total, seen.Extra.Ready = r.extra, r.extra, r.extra
		seen.Extra.Claim = claim
	}
	return seen
}

func (r *extraRun) subject() rollout.Subject {
	return rollout.Subject{Workload: catalog.Workload{Namespace: "shop",
		WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}},
		Name: "web", Claim: "rollout/default/shop/web@1", DeadlineSeconds: 600}
}

// take applies a decision, and fails if it removes pods of the extra Deployment.
func (r *extraRun) take(what string, d NextAction) (wrote bool) {
	c := d.Extra
	switch {
	case c == nil:
		return false
	case c.Delete != "":
		r.t.Fatalf("%s deletes the extra Deployment during the release: %s", what, d.Reason)
	case c.Create != nil:
		r.extra, r.left = *c.Create, *c.Create
	case c.Replicas != nil:
		if *c.Replicas <= r.extra {
			r.t.Fatalf("%s takes the extra Deployment from %d to %d: %s", what, r.extra, *c.Replicas, d.Reason)
		}
		r.extra, r.left = *c.Replicas, *c.Replicas
	}
	return true
}

// An extra workload never shrinks during a release: neither by a jump back, nor by edited steps, nor when the workload
// is scaled down.
func TestExtraWorkload_NeverShrinks_DuringRelease(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &extraRun{t: t, size: rapid.Int32Range(1, 20).Draw(t, "size"), extra: -1,
			declared: rapid.Bool().Draw(t, "declared")}
		tech := ForDeclared(deploymentExtra{}, r.declared)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			switch rapid.SampledFrom([]string{"step", "step", "scale", "hold", "finish"}).Draw(t, "what") {
			case "scale": // the workload's owner, or an autoscaler
				r.size = rapid.Int32Range(0, 20).Draw(t, "to")
			case "hold": // the release is paused, or a step has failed
				for r.take("a halt", Move(tech, rollout.MoveRequest{Subject: r.subject(), Step: 1,
					Style: strategy.StyleCanary, Halt: true}, r.seen())) {
				}
			case "finish": // until the workload itself is of the new version, the extra pods serve
				asked := drawReplicas(t)
				d := Finish(tech, rollout.FinishRequest{Subject: r.subject(), Action: rollout.FinishResume,
					To: rollout.SideNew, Template: "new", ExtraReplicas: &asked}, r.seen())
				if d.Extra != nil && d.Extra.Replicas != nil {
					r.take("finish", d)
				}
			case "step": // forwards, back, or one that was edited
				req := rollout.MoveRequest{Subject: r.subject(), Step: rapid.IntRange(1, 5).Draw(t, "step"),
					Style: strategy.StyleCanary, Replicas: drawReplicas(t)}
				for r.take("a step", Move(tech, req, r.seen())) {
				}
			}
		}
	})
}

func drawReplicas(t *rapid.T) intstr.IntOrString {
	if rapid.Bool().Draw(t, "as a share") {
		return intstr.Parse(rapid.SampledFrom([]string{"1%", "10%", "50%", "100%"}).Draw(t, "share"))
	}
	return intstr.FromInt32(rapid.Int32Range(1, 25).Draw(t, "number"))
}

// The property is not vacuous: the release creates the extra Deployment and scales it up.
func TestExtraWorkload_GrowsWithSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &extraRun{t: t, size: 10, extra: -1, declared: rapid.Bool().Draw(t, "declared")}
		tech := ForDeclared(deploymentExtra{}, r.declared)
		for step, share := range []string{"20%", "50%", "20%"} {
			req := rollout.MoveRequest{Subject: r.subject(), Step: step + 1, Style: strategy.StyleCanary,
				Replicas: intstr.FromString(share)}
			d := Move(tech, req, r.seen())
			for r.take("a step", d) {
				d = Move(tech, req, r.seen())
			}
			if d.Action != workload.ActDone {
				t.Fatalf("step %d has not ended: %s", step+1, d.Reason)
			}
			if want := []int32{2, 5, 5}[step]; r.extra != want {
				t.Fatalf("step %d has %d pods, want %d", step+1, r.extra, want)
			}
		}
	})
}
