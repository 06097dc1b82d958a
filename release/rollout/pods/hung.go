package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// updateDeadline is how long a pod of a workload's own update may be unready before that update hangs, for a kind
// without a deadline of its own. It is Kubernetes' default for a Deployment.
const updateDeadline = 10 * time.Minute

// The reasons of a Deployment's condition Progressing while its own update has not come to its end.
// (https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/util/deployment_util.go)
const reasonTimedOut = "ProgressDeadlineExceeded"

var unfinishedReasons = []string{reasonTimedOut, "ReplicaSetUpdated", "NewReplicaSetCreated", "FoundNewReplicaSet"}

// HungUpdate is a workload's own update that does not come to its end by itself. A release begins over it at once: what
// it brings is usually the fix.
type HungUpdate struct {
	// To is the revision of the update, Trouble why it hangs. Stable is the revision that a release begins from; it is
	// To if most of the ready pods are of that revision.
	To, Stable Revision
	Trouble    string
	// Unknown is true if no revision can be named as the stable one: none has a ready pod.
	Unknown bool
}

// Hung returns the workload's own update if it hangs: one of its pods is in trouble, or it has passed its deadline. The
// snapshot must have its pods.
func Hung(tech Technique, seen Observed) (u HungUpdate, hangs bool) {
	to, under := seen.ownUpdate()
	if !under {
		return u, false
	}
	trouble := seen.updateTrouble(to)
	if trouble == "" {
		return u, false
	}
	whole := seen.allOf(to)
	stable, known := stableBeside(seen, to, tech.takesOut(withoutHold(seen)))
	if whole && (!known || stable.Name == to.Name) {
		return u, false // a workload that has pods of one version only begins from that one
	}
	return HungUpdate{To: to, Stable: stable, Trouble: trouble, Unknown: !known}, true
}

// MayHang reports whether the workload's own update is under way, so that its pods show whether it hangs.
func MayHang(seen Observed) bool {
	_, under := seen.ownUpdate()
	return under
}

// ownUpdate returns the revision to which the workload's own controller brings the pods; false if all of them are
// there, or if it is not known.
func (o Observed) ownUpdate() (to Revision, under bool) {
	if o.Declared == "" {
		to, under = o.liveRevision()
	} else {
		to, under = o.newest(func(r Revision) bool {
			total, _ := o.Count(r)
			return total+r.Desired > 0 && r.Template != o.Declared
		})
	}
	if !under || o.Lagging() {
		return to, false
	}
	_, ready := o.Count(to)
	switch {
	case !o.allOf(to):
		return to, true
	case ready > 0:
		return to, false
	case o.Current != "":
		return to, o.Current != to.Name
	}
	return to, slices.Contains(unfinishedReasons, o.Progress.Reason)
}

// allOf reports whether the workload has all its pods, and all of one revision.
func (o Observed) allOf(r Revision) bool {
	all := int32(0)
	for _, each := range o.Revisions {
		n, _ := o.Count(each)
		all += n
	}
	total, _ := o.Count(r)
	return total >= o.Replicas && all == total
}

// updateTrouble returns why the workload's own update does not go on, "" if it does.
func (o Observed) updateTrouble(to Revision) string {
	of := func(is func(workload.Pod) bool) []workload.Pod {
		return slices.DeleteFunc(slices.Clone(o.Pods), func(p workload.Pod) bool {
			return p.Revision != to.Hash || to.Hash == "" || !p.Alive() || p.Ready || !is(p)
		})
	}
	worst := func(list []workload.Pod) string {
		return workload.WorstPodReason(list, func(p workload.Pod) int { return int(p.Severity()) })
	}
	if stuck := of(workload.Pod.Stuck); len(stuck) > 0 {
		return worst(stuck)
	}
	// between two crashes, a container runs for a moment
	if crashed := of(func(p workload.Pod) bool { return p.Restarts > 0 }); len(crashed) > 0 {
		return fmt.Sprintf("pod %s: CrashLoopBackOff: it is not ready, and was restarted %d times", crashed[0].Name,
			crashed[0].Restarts)
	}
	if o.Progress.Reason == reasonTimedOut {
		return "it has passed its progressDeadlineSeconds: " + strings.TrimSuffix(o.Progress.Message, ".")
	}
	late := of(func(p workload.Pod) bool { return o.Now.Sub(p.Since) >= updateDeadline })
	if o.Progress.Reason == "" && len(late) > 0 {
		return fmt.Sprintf("for %s %s", updateDeadline, cmp.Or(worst(late), "a pod is not ready"))
	}
	return ""
}

// stableBeside returns the revision that serves while the update to another one hangs. out is how many pods that update
// may take out. In this order: the newest older revision whose pods are ready in the size less those; the one with most
// ready pods; if the update takes out all pods at once, the one before it; and the one that a record calls Healthy.
func stableBeside(seen Observed, to Revision, out int32) (stable Revision, known bool) {
	older := func(r Revision) bool { return r.Name != to.Name }
	ready := func(r Revision) int32 {
		_, n := seen.Count(r)
		return n
	}
	if r, there := seen.newest(func(r Revision) bool {
		return older(r) && ready(r) > 0 && ready(r) >= seen.Replicas-out
	}); there {
		return r, true
	}
	most := int32(0)
	for _, r := range slices.Backward(seen.Revisions) {
		if n := ready(r); n > most || n == most && n > 0 && !older(stable) {
			stable, most = r, n
		}
	}
	switch before, there := seen.RevisionByName(seen.Current); {
	case most > 0:
		return stable, true
	case out < seen.Replicas && seen.Served != nil:
		return seen.kept(*seen.Served)
	case out < seen.Replicas:
		return Revision{}, false
	case there && older(before):
		return before, true
	}
	return seen.newest(func(r Revision) bool { return older(r) && r.Template != seen.Declared })
}

// Notice is the warning, before the start, that the release begins over an update that hangs.
func (u HungUpdate) Notice(s rollout.Subject) string {
	if u.Stable.Name == u.To.Name {
		return fmt.Sprintf("%s. The release begins at once, with that revision as the stable one, since most of the "+
			"ready pods are of it; its broken pods go first", u.what(s))
	}
	return fmt.Sprintf("%s. The release begins at once: revision %s is the stable one, and the broken pods of the "+
		"update go first", u.what(s), named(u.Stable))
}

// Refusal explains that no revision can be the stable one, and lists them, newest first.
func (u HungUpdate) Refusal(s rollout.Subject, seen Observed) string {
	var list []string
	for _, r := range slices.Backward(seen.Revisions) {
		total, ready := seen.Count(r)
		if len(list) == maxKeptNamed {
			list = append(list, "…")
			break
		}
		list = append(list, fmt.Sprintf("%s: %d of %d pods ready", named(r), ready, total))
	}
	return fmt.Sprintf("%s, no revision has a ready pod, and no record of a Healthy release names one, so that none "+
		"can be the stable one (%s). Bring one of them to serve first, for "+
		"example with `kubectl rollout undo`, then start the rollout", u.what(s),
		strings.Join(list, "; "))
}

func (u HungUpdate) what(s rollout.Subject) string {
	return fmt.Sprintf("%s: its own update to revision %s hangs (%s)", s.Workload, named(u.To), u.Trouble)
}

// named names a revision with its images: "web-5f67b774dd (app=registry/app:2)".
func named(r Revision) string {
	if images := strategy.ImageList(r.Images); images != "" {
		return r.Name + " (" + images + ")"
	}
	return r.Name
}

// beginOver decides on the first write of a release that begins while the workload's own update hangs. The stable
// template replaces the one that hangs in the same write, and nothing moves a pod until the first step does: so the
// broken pods go first, and no ready one for them.
func beginOver(tech Technique, req rollout.BeginRequest, seen Observed, u HungUpdate) NextAction {
	if u.Unknown {
		return failf(failure.Refused, "%s", u.Refusal(req.Subject, seen))
	}
	saved := newSaved(tech, req, seen, u.Stable, u.Stable.Template)
	saved.Over = u.To.Name
	if u.Stable.Name == u.To.Name && seen.Declared == "" {
		saved.StableTemplate = seen.Template
	}
	if seen.Template == saved.StableTemplate || seen.Template == saved.Declared {
		return takeClaim(tech, req, seen, saved)
	}
	newest := seen.Revisions[len(seen.Revisions)-1]
	saved.StableNumber = newest.Number + 1 // its controller numbers it anew
	d := takeClaim(tech, req, seen, saved)
	seen.Saved = &saved
	settings, rest := tech.hold(seen)
	d.Write.Template = &workload.Template{Revision: saved.Stable}
	d.Write.Settings = seen.settingsToWrite(settings...)
	if rest != nil {
		annotate(d.Write, map[string]string{rollout.AnnotationSettled: rest.String()})
	}
	d.Reason = fmt.Sprintf("%s; its template is set back before the first step, since the update to revision %s hangs",
		d.Reason, u.To.Name)
	return d
}

// takeClaim returns the write that takes the claim and saves what the rollout borrows.
func takeClaim(tech Technique, req rollout.BeginRequest, seen Observed, saved rollout.Saved) NextAction {
	s := req.Subject
	d := set(fmt.Sprintf("take the claim and save what the rollout borrows; revision %s serves", saved.Stable),
		&workload.Write{
			Step: "begin", ExpectedClaim: seen.Claim, OnlyIfUnchanged: true, Claim: s.Claim,
			Annotations: map[string]string{workload.AnnotationRollout: saved.String(),
				rollout.AnnotationRecover: rollout.RecoverText(saved, s.Workload)},
			Remove: []string{gate.AnnotationHeld}, // part of AnnotationRollout from now on
		})
	d.Write.Remove = append(d.Write.Remove, staleMarks(seen, saved)...)
	if saved.Declared != "" {
		beginDeclared(tech, d.Write, seen, saved)
	}
	d.Ends, d.Begun = true, answerBegin(req, seen, saved).Begun
	return d
}

// restoresBeforeBegin reports whether the stable version is brought back before the release begins, instead of while
// its first step moves pods: an extra workload runs beside a workload that must be whole, and a workload that declares
// the new version is held until the end.
func restoresBeforeBegin(tech Technique, seen Observed, u HungUpdate) bool {
	return tech.usesExtraWorkload() && seen.Declared != "" && seen.Template == seen.Declared && !u.Unknown &&
		u.Stable.Template != seen.Declared && u.Stable.Name != u.To.Name
}

// removeHung deletes the pods of an update that hung before the release and that are not ready: a controller that goes
// by ordinals waits for each of them. Those below the partition come back as the stable version, and are waited for
// before the first ready pod is replaced.
func (k partitioned) removeHung(t task, seen Observed) (NextAction, bool) {
	hung, there := seen.RevisionByName(seen.Saved.Over)
	if !k.ordinals || !there || t.Request.Back || hung.Hash == t.Aim.Hash {
		return NextAction{}, false
	}
	replaced := seen.Saved.Over != seen.Saved.Stable
	stuck := slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return p.Revision != hung.Hash || p.Ready || p.Deleting
	})
	if len(stuck) > 0 && (replaced || t.Placed) {
		return removeStuck(stuck), true
	}
	stable, _ := seen.RevisionByName(seen.Saved.Stable)
	settled := seen.CountPods(func(p workload.Pod) bool {
		return !p.Deleting && (p.Ready || p.Stuck() && p.Revision == stable.Hash ||
			!replaced && p.Revision == hung.Hash)
	})
	if t.Total > 0 || settled >= t.Size {
		return NextAction{}, false
	}
	return wait("the pods that replace those of the update that hung are starting"), true
}

// hold keeps the controller from replacing pods.
func (k partitioned) hold(seen Observed) ([]workload.Setting, *rollout.SettledState) {
	return []workload.Setting{k.partitionSetting(seen, seen.Replicas, seen.Replicas)}, nil
}

func (byDeletion) hold(Observed) ([]workload.Setting, *rollout.SettledState) {
	return []workload.Setting{{Path: pathUpdateStrategy, Value: onDelete}}, nil
}

// hold pauses a Deployment with as many pods as it has.
func (deployment) hold(seen Observed) ([]workload.Setting, *rollout.SettledState) {
	surplus := deploymentPartition{}.surplus(seen)
	return pausedFields(surplus, seen), &rollout.SettledState{Surge: surplus}
}

// hold does not hold a workload beside which an extra one runs: its own controller makes it whole again.
func (deploymentExtra) hold(Observed) ([]workload.Setting, *rollout.SettledState) { return nil, nil }

// takesOut returns the own maxUnavailable in pods; type Recreate takes out all of them.
func (deployment) takesOut(seen Observed) int32 {
	if recreates(seen.Settings[pathStrategy]) {
		return seen.Replicas
	}
	unavailable, _ := currentLimits(seen)
	return unavailable
}

// takesOut returns the own maxUnavailable in pods: by default 1, of a CloneSet 20 %.
func (k partitioned) takesOut(seen Observed) int32 {
	s := parseStrategy(seen.Settings[pathUpdateStrategy])
	own := cmp.Or(s.MaxUnavailable, s.RollingUpdate.MaxUnavailable)
	switch {
	case own != nil:
		return strategy.PodsRoundedUp(*own, seen.Replicas)
	case k.share:
		return strategy.PodsRoundedUp(defaultUnavailable, seen.Replicas)
	}
	return 1
}

// ProgressOf is what a Deployment's condition Progressing says about its own update; empty without one.
type ProgressOf struct{ Reason, Message string }

// ConditionProgressing is the type of that condition.
const ConditionProgressing = string(appsv1.DeploymentProgressing)
