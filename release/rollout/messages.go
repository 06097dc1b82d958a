package rollout

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

// The activities of a party's queue. Messages are only ever extended: recorded histories carry them.
const (
	// ActivityPreflight checks without a write whether a rollout can be carried out. PreflightRequest → PreflightResult.
	ActivityPreflight = "rollout.Preflight"
	// ActivityBegin claims the workload and saves what there is to save, before the first change. BeginRequest → BeginResult.
	ActivityBegin = "rollout.Begin"
	// ActivityMove brings a step's number of pods to the new version, sub-batch by sub-batch, and waits for them. MoveRequest → MoveResult.
	ActivityMove = "rollout.Move"
	// ActivityRoute makes one change of the traffic. RouteRequest → RouteResult.
	ActivityRoute = "rollout.Route"
	// ActivityFinish makes one move of finalising with the pods. FinishRequest → MoveResult.
	ActivityFinish = "rollout.Finish"
)

// The centre's activities for a TrafficRouting that several rollouts share, on the engine's own queue.
const (
	// ActivityHoldTraffic notes a rollout as a holder of a TrafficRouting. HoldTrafficRequest → HoldTrafficResult.
	ActivityHoldTraffic = "home.HoldTraffic"
	// ActivityLeaveTraffic asks whether the holder is the last, which restores the routes first. LeaveTrafficRequest → LeaveTrafficResult.
	ActivityLeaveTraffic = "home.LeaveTraffic"
	// ActivityCompleteRollout writes the rollout's final status into its record. CompleteRequest → nothing.
	ActivityCompleteRollout = "home.CompleteRollout"
)

// Subject is what every request of a rollout's activity names.
type Subject struct {
	Workload catalog.Workload `json:"workload"`
	// Name is the rollout's.
	Name string `json:"name"`
	// UID is the workload's own as Begin found it, "" until then: another object of its name is not what was claimed.
	UID string `json:"uid,omitempty"`
	// Claim is workloadops.Holder{workflow ID, first run ID}.String(). TakeOver is the claim of a dead workflow that may be replaced.
	Claim    string `json:"claim"`
	TakeOver string `json:"takeOver,omitempty"`
	// DeadlineSeconds is how long the pods may take, SpentSeconds what interrupted attempts have used; time out of reach does not count.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	SpentSeconds    int64 `json:"spentSeconds,omitempty"`
	// UnreachableBudgetSeconds is how long the cluster may be out of reach before the activity fails with failure.Unreachable; 0: it is
	// patient, and tries for ever without a word to the workflow.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds,omitempty"`
}

// PreflightRequest asks a party's worker about one rollout. Of Claim the engine counts; TakeOver is not looked at.
type PreflightRequest struct {
	Subject
	Strategy strategy.Strategy `json:"strategy"`
	Change   strategy.Change   `json:"change"`
	// Shared is the TrafficRouting's own part when the strategy refers to one.
	Shared *SharedTraffic `json:"shared,omitempty"`
	// Build is what a plan builds first; nil for other releases.
	Build *build.Order `json:"build,omitempty"`
	// Others are checked together with this one; none of them has others itself.
	Others []PreflightRequest `json:"others,omitempty"`
}

// SharedTraffic is what a TrafficRouting asks: its routings, used without canary Services.
type SharedTraffic struct {
	Name     string             `json:"name"`
	Routings []strategy.Routing `json:"routings"`
	Traffic  strategy.Traffic   `json:"traffic"`
}

// PreflightResult lists what cannot be done; empty: everything can.
type PreflightResult struct {
	Refusals []Refusal `json:"refusals,omitempty"`
	// Notices are what is not in the rollout's way, and people should know before it starts.
	Notices []string `json:"notices,omitempty"`
	// Holder is the claim that another release has on the workload or on an object that routes to it, and On that object; "" when it is free.
	Holder string `json:"holder,omitempty"`
	On     string `json:"on,omitempty"`
	// Frozen says that a frozen split of an earlier release waits on the workload: this release brings it home first.
	Frozen bool `json:"frozen,omitempty"`
	// Unsettled says that the workload's own update is still under way: the release waits for it before it begins, for policy.settleSeconds.
	Unsettled string `json:"unsettled,omitempty"`
	// Replicas is the workload's size, 0 when it is not known.
	Replicas int32 `json:"replicas,omitempty"`
	// Template is the digest of the pod template that the workload has, "" while something of an earlier release is on it.
	Template string `json:"template,omitempty"`
	// Same says that the workload is of the new version already; it is refused then, too.
	Same bool `json:"same,omitempty"`
	// Foreseen is the new pod template; nil where it cannot be told yet.
	Foreseen *Foreseen `json:"foreseen,omitempty"`
	// Revision is what the cluster has of Change.Revision; nil when the request names none, or when that is refused.
	Revision *strategy.Revision `json:"revision,omitempty"`
	// Unanswered says why one of several that were checked together could not be checked, as the failure of the activity does where there is only one.
	Unanswered string `json:"unanswered,omitempty"`
	// Alone says that one of several has no answer, and may have one if it is asked alone.
	Alone bool `json:"alone,omitempty"`
	// Others are the answers to the request's others, in their order. A worker of an earlier build has none: they are to be asked alone.
	Others []PreflightResult `json:"others,omitempty"`
}

// Refusal says what cannot be done; Field is the JSON path within the POST's body ("strategy.canary.steps[1].matches"), "" for the whole. A plan
// that asks for the rollout has its item's key there where that is at fault (source.KeyPackage).
type Refusal struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// BeginRequest asks for the claim.
type BeginRequest struct {
	Subject
	Strategy strategy.Strategy `json:"strategy"`
	Change   strategy.Change   `json:"change"`
	// Adopt says that a saved state that is already there (a frozen split, a dead rollout) is only taken over: the caller brings it home next.
	Adopt bool `json:"adopt,omitempty"`
	// Unsettled says what becomes of a workload whose own update is still under way; "": it is refused.
	Unsettled Unsettled `json:"unsettled,omitempty"`
}

// Unsettled says what Begin does with a workload whose own update is still under way: right after `kubectl apply`, for example.
type Unsettled string

// What Begin can do: answer BeginResult.Unsettled at once, or wait until the update is over, for DeadlineSeconds at most.
const (
	UnsettledTell Unsettled = "tell"
	UnsettledWait Unsettled = "wait"
)

// BeginResult is what the workload was like.
type BeginResult struct {
	Replicas int32 `json:"replicas"`
	// Stable is Saved.Stable, StableHash the value of the pods' revision label (see RevisionLabel).
	Stable     string `json:"stable"`
	StableHash string `json:"stableHash"`
	Generation int64  `json:"generation"`
	// UID is the workload's.
	UID string `json:"uid,omitempty"`
	// StableTemplate is the digest of the pod template that serves, StableImages are its images by container.
	StableTemplate string            `json:"stableTemplate,omitempty"`
	StableImages   map[string]string `json:"stableImages,omitempty"`
	// StablePackage is the SHA-256 of the code package that the stable version runs, "" when it runs none.
	StablePackage string `json:"stablePackage,omitempty"`
	// Whole says that every pod is of the version already that the workload declares: there are no steps to go through.
	Whole bool `json:"whole,omitempty"`
	// Placed says that the new template may stand on the workload already: the write that took the claim was the first of the Move as well.
	Placed bool `json:"placed,omitempty"`
	// Adopted is what an earlier release left on the workload; but for the claim nothing was done: finalise it to stable, then begin again.
	Adopted *Adopted `json:"adopted,omitempty"`
	// Unsettled says that nothing was done, since the workload's own update is still under way: the request was to tell.
	Unsettled string `json:"unsettled,omitempty"`
	Message   string `json:"message"`
}

// Adopted is the part of Saved that decides how it is brought home.
type Adopted struct {
	Style          strategy.Style     `json:"style"`
	Routings       []strategy.Routing `json:"routings,omitempty"`
	NoCanary       bool               `json:"noCanary,omitempty"`
	TrafficRouting string             `json:"trafficRouting,omitempty"`
}

// MoveRequest asks for a step's pods.
type MoveRequest struct {
	Subject
	// Step is the step's number, from 1; for messages.
	Step  int            `json:"step"`
	Style strategy.Style `json:"style"`
	// Replicas is how many pods are to be of the new version.
	Replicas intstr.IntOrString `json:"replicas"`
	// Change makes the new template, in the first Move only. Template is that template's digest once it is known.
	Change   strategy.Change `json:"change"`
	Template string          `json:"template,omitempty"`
	// PutBack has a template that somebody else has edited replaced by ours again (verb retry after drift).
	PutBack          bool                `json:"putBack,omitempty"`
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// Rest says that the step rests afterwards: a Deployment is paused, with its own settings, and AnnotationRest is written.
	Rest bool `json:"rest,omitempty"`
	// Native says that no step from this one on rests or moves traffic but the last, which takes all pods: the workload's own controller brings
	// every pod to the new version, with the workload's own settings. The Move ends as soon as Replicas of them are ready.
	Native bool `json:"native,omitempty"`
	// Halt only brings to rest what an interrupted Move has left: no pod is moved on, and nothing of the step is waited for.
	Halt bool `json:"halt,omitempty"`
	// Back moves pods to the stable version instead: Replicas of those that were new when the rollback began (From). Only StylePartition.
	Back bool  `json:"back,omitempty"`
	From int32 `json:"from,omitempty"`
	// CanaryMetadata is for StyleCanary.
	CanaryMetadata *strategy.PodMetadata `json:"canaryMetadata,omitempty"`
	// KeepStable says that the stable Service is pinned to the stable pods: one of them stays, however small the workload has become.
	KeepStable bool `json:"keepStable,omitempty"`
	// Look says that the pods are already where they should be, as far as is known: a change that somebody else has made is looked at.
	// An edited template or a deleted workload fails with failure.Drift and failure.Gone; a new size is followed.
	Look bool `json:"look,omitempty"`
	// Batch numbers the pods that the Move brings, by labels; nil: they are not numbered.
	Batch *Batch `json:"batch,omitempty"`
	// Foreseen is the new template as the preflight found it; nil where it is not known.
	Foreseen *Foreseen `json:"foreseen,omitempty"`
	// TellStuck has the Move answer MoveResult.Stuck as soon as a new pod is in trouble, or none has come for long: the workflow says so, and asks again.
	TellStuck bool `json:"tellStuck,omitempty"`
}

// Batch is how a release numbers the pods of a step. RolloutID "" is the new revision's name.
type Batch struct {
	RolloutID string `json:"rolloutId,omitempty"`
	// Step is the number of the step, from 1.
	Step int `json:"step,omitempty"`
}

// MoveResult is what the pods are like. A failure of kind WorkloadFailed carries the same numbers in its details.
type MoveResult struct {
	// Replicas is the workload's size, Target the number that was asked, in pods.
	Replicas     int32 `json:"replicas"`
	Target       int32 `json:"target"`
	Updated      int32 `json:"updated"`
	UpdatedReady int32 `json:"updatedReady"`
	StableReady  int32 `json:"stableReady"`
	// Canary is the new revision in the form of Saved.Canary, CanaryHash the value of its pods' revision label.
	Canary     string `json:"canary"`
	CanaryHash string `json:"canaryHash"`
	// Template is the digest of the new pod template as the API server keeps it, Images are its images by container once it has a revision.
	Template   string            `json:"template"`
	Images     map[string]string `json:"images,omitempty"`
	Generation int64             `json:"generation"`
	Message    string            `json:"message"`
	// Stuck says that the Move is not over, for a pod in trouble that may pass ("pod a: ImagePullBackOff"); SpentSeconds is its time.
	Stuck        string `json:"stuck,omitempty"`
	SpentSeconds int64  `json:"spentSeconds,omitempty"`
}

// RouteAction is one change of the traffic.
type RouteAction string

// The changes. Each is level-based: made twice it changes nothing the second time.
const (
	// RoutePin pins the stable Service to the stable revision.
	RoutePin RouteAction = "PinStableService"
	// RouteEnsure sees to the canary Service and has the routes do what RouteRequest.Traffic asks.
	RouteEnsure RouteAction = "EnsureRoutes"
	// RouteUnpin gives the stable Service its own selector back (RestoreStableService).
	RouteUnpin RouteAction = "RestoreStableService"
	// RouteToStable gives the routes back: the routing objects are what they were (FinalisingStepRouteTrafficToStable).
	RouteToStable RouteAction = "RouteTrafficToStable"
	// RouteToNew sends everything to the new version (FinalisingStepRouteTrafficToNew).
	RouteToNew RouteAction = "RouteTrafficToNew"
	// RouteRemoveCanary removes the canary Services (RemoveCanaryService).
	RouteRemoveCanary RouteAction = "RemoveCanaryService"
)

// RouteRequest asks for one change of the traffic.
type RouteRequest struct {
	Subject
	Action   RouteAction        `json:"action"`
	Routings []strategy.Routing `json:"routings"`
	Traffic  strategy.Traffic   `json:"traffic"`
	// StableHash and CanaryHash are values of the pods' revision label (RevisionLabel of the kind).
	StableHash string `json:"stableHash"`
	CanaryHash string `json:"canaryHash,omitempty"`
	// CanaryLabels are the labels of PatchPodTemplateMetadata: part of the canary Service's selector.
	CanaryLabels map[string]string `json:"canaryLabels,omitempty"`
	// NoCanary names the stable Service as the canary's too: DisableGenerateCanaryService, or a shared TrafficRouting.
	NoCanary bool `json:"noCanary,omitempty"`
	// Overwrite writes over what somebody else has edited meanwhile (verb retry after drift); without it that fails with failure.Drift.
	Overwrite bool `json:"overwrite,omitempty"`
	// Declared says that the release is of what the workload itself declares: what other tools look for is noted on custom objects.
	Declared bool `json:"declared,omitempty"`
	// Restores puts back what somebody else has changed, and does not wait long for pods: those that it needs may be gone by the same hand.
	Restores bool `json:"restores,omitempty"`
}

// RouteResult says what was done.
type RouteResult struct {
	// Modified says whether anything was written: then the routes need GraceSeconds to take effect.
	Modified     bool   `json:"modified"`
	GraceSeconds int64  `json:"graceSeconds,omitempty"`
	Message      string `json:"message"`
	// Lacks is what would have had to be waited for, of one that Restores; "" when the change is made and in effect.
	Lacks string `json:"lacks,omitempty"`
}

// FinishAction is one move of finalising with the pods.
type FinishAction string

// The moves.
const (
	// FinishResume gives the workload back what was borrowed, and waits until it is whole: of the new version, or of the stable one.
	FinishResume FinishAction = "ResumeWorkload"
	// FinishRelease removes the extra workload and everything of ours from the workload, the claim last.
	FinishRelease FinishAction = "ReleaseWorkloadControl"
	// FinishFreeze gives the claim back and leaves everything else: the split holds (stop to frozen).
	FinishFreeze FinishAction = "Freeze"
	// FinishResumeAndRelease is both in one, for a rollout without traffic.
	FinishResumeAndRelease FinishAction = "ResumeAndRelease"
	// FinishAutoscalers gives the autoscalers of a workload that was deleted their limits back, whatever is there of its name by now.
	FinishAutoscalers FinishAction = "RestoreAutoscalers"
)

// Side is a version: what a release is brought to.
type Side string

// The sides.
const (
	SideStable Side = "stable"
	SideNew    Side = "new"
)

// FinishRequest asks for one move. What was borrowed is read from the workload itself (Saved).
type FinishRequest struct {
	Subject
	Action FinishAction `json:"action"`
	To     Side         `json:"to"`
	// Template is the digest of the new template, for To new: somebody else's edit is drift. "": not looked at.
	Template string `json:"template,omitempty"`
	// Change is for a rollout that is finished to new before its first Move has set the template.
	Change strategy.Change `json:"change"`
	// PutBack: as in MoveRequest.
	PutBack bool `json:"putBack,omitempty"`
	// Extra is the share of pods that the extra workload of StyleCanary serves with until the workload itself is of the new version: it
	// grows with the workload. nil: it is left at its size.
	Extra *intstr.IntOrString `json:"extra,omitempty"`
	// Batch numbers the pods once all are of the new version; nil: they have their numbers.
	Batch *Batch `json:"batch,omitempty"`
	// Foreseen: as in MoveRequest.
	Foreseen *Foreseen `json:"foreseen,omitempty"`
}

// Foreseen is what would become of a workload's pod template: the digest that the API server would give the new one, made of that with the digest Of.
type Foreseen struct {
	UID      string `json:"uid"`
	Of       string `json:"of"`
	Template string `json:"template"`
}

// Digest is the new template's on a workload of that UID whose live template has that digest; "" where something else was foreseen, or nothing.
func (f *Foreseen) Digest(uid, template string) string {
	if f == nil || f.UID != uid || template != f.Of && template != f.Template {
		return ""
	}
	return f.Template
}

// HoldTrafficRequest asks for a hold on a TrafficRouting of the home cluster.
type HoldTrafficRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Holder is the rollout's claim.
	Holder string `json:"holder"`
	// DeadlineSeconds is how long to wait for another release that gives the routes back; 0: without a limit.
	DeadlineSeconds int64 `json:"deadlineSeconds,omitempty"`
}

// HoldTrafficResult is what the TrafficRouting asks.
type HoldTrafficResult struct {
	Shared SharedTraffic `json:"shared"`
	// Claim is the claim under which its routes are written, the same for all holders.
	Claim string `json:"claim"`
}

// LeaveTrafficRequest says that a holder leaves. Restored says that it was told to restore the routes, and has.
type LeaveTrafficRequest struct {
	HoldTrafficRequest
	Restored bool `json:"restored,omitempty"`
}

// LeaveTrafficResult says what the leaving holder has to do. Gone: the object was deleted; its routes are restored from what is saved.
type LeaveTrafficResult struct {
	// Restore says that no other holder is left: restore the routes of Shared, then leave with Restored.
	Restore bool          `json:"restore"`
	Shared  SharedTraffic `json:"shared"`
	Claim   string        `json:"claim"`
}

// CompleteRequest names the record of a rollout that is over, and its workflow.
type CompleteRequest struct {
	Record     string `json:"record"`
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// Party, Namespace, Name are the subject whose old records are pruned.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Status is the final status, where the request is no part of a history; nil: it is asked from the workflow.
	Status *Status `json:"status,omitempty"`
}

// SignalObserved carries Observed: a party's watch tells the release that somebody else has changed a claimed workload at rest.
const SignalObserved = "slipway.observed"

// Observed is what was noticed. It is a hint: the workflow has the workload, or what routes to it, looked at.
type Observed struct {
	// What is "edited", "scaled", "deleted" (of the workload) or one of the words below.
	What string `json:"what"`
	// Message says it in a sentence.
	Message string `json:"message"`
	// By is the tool that did it, as the object's managedFields name it; "" when they do not tell.
	By string `json:"by,omitempty"`
	// Claim is the claim that stands on the object, and Object the object ("Deployment shop/web"). Anybody who may edit the object can
	// write a claim onto it, so that the release looks whether both are its own; "" in hints of an earlier build.
	Claim  string `json:"claim,omitempty"`
	Object string `json:"object,omitempty"`
}

// What can be observed besides.
const (
	// ObservedSettings says that somebody else has changed fields that the release has borrowed: they are put back.
	ObservedSettings = "settings"
	// ObservedRoutes says that somebody else has changed, or deleted, an object that routes to the workload: it is put back.
	ObservedRoutes = "routes"
	// ObservedUnpinned says that the party's worker has given a Service its own selector back, since it was pinned to pods of which none was
	// ready. ObservedUnrouted says that it has given routes back, since no pod of the new version was ready.
	ObservedUnpinned = "unpinned"
	ObservedUnrouted = "unrouted"
)

// MostDisturbed is how often what somebody else has changed is put back at one step. Who changes it more often is not argued with.
const MostDisturbed = 5

// RevisionLabel is the label of a workload's pods that tells their revision.
func RevisionLabel(kind string) string {
	switch kind {
	case "Deployment", "CloneSet":
		return "pod-template-hash"
	default:
		return "controller-revision-hash"
	}
}
