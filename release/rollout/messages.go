package rollout

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

// ActivityPreflight checks whether rollouts can be carried out, without writing. PreflightRequests → []PreflightResult,
// in the same order.
const ActivityPreflight = "rollout.Preflight"

// The centre's activities for a TrafficRouting that several rollouts share, on the engine's own queue.
const (
	// ActivityHoldTraffic records a rollout as a holder of a TrafficRouting. HoldTrafficRequest → HoldTrafficResult.
	ActivityHoldTraffic = "home.HoldTraffic"
	// ActivityLeaveTraffic removes a holder. The last one is asked to restore the routes first. LeaveTrafficRequest →
	// LeaveTrafficResult.
	ActivityLeaveTraffic = "home.LeaveTraffic"
	// ActivityCompleteRollout writes the rollout's final status into its record. CompleteRequest → nothing.
	ActivityCompleteRollout = "home.CompleteRollout"
)

// Subject is the part that all requests to a rollout's activities share.
type Subject struct {
	Workload catalog.Workload `json:"workload"`
	// Name is the rollout's.
	Name string `json:"name"`
	// UID is the workload's UID as Begin found it, "" until then. Another object of the same name is not the claimed
	// one.
	UID string `json:"uid,omitempty"`
	// Claim is workload.Holder{workflow ID, first run ID}.String(). TakeOver is the claim of a dead workflow that
	// may be replaced.
	Claim    string `json:"claim"`
	TakeOver string `json:"takeOver,omitempty"`
	// Ended is true if the release of TakeOver has ended and given everything back: what is left of it is a copy that
	// another client has brought back, and is not followed.
	Ended bool `json:"ended,omitempty"`
	// DeadlineSeconds is how long the pods may take, SpentSeconds how much of it interrupted attempts have used. Time
	// while unreachable does not count.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	SpentSeconds    int64 `json:"spentSeconds,omitempty"`
	// UnreachableBudgetSeconds is how long the cluster may be unreachable before the activity fails with
	// failure.Unreachable. 0: it retries for ever, without a report to the workflow.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds,omitempty"`
}

// PreflightRequests asks a party's worker about several rollouts.
type PreflightRequests struct {
	Rollouts []PreflightRequest `json:"rollouts"`
	// Retry makes the activity fail if a rollout cannot be checked for now, so that it is retried.
	Retry bool `json:"retry,omitempty"`
}

// PreflightRequest asks a party's worker about one rollout. Only the engine part of Claim matters; TakeOver is ignored.
type PreflightRequest struct {
	Subject
	Strategy strategy.Strategy `json:"strategy"`
	Change   strategy.Change   `json:"change"`
	// Shared is what the TrafficRouting asks for, if the strategy refers to one.
	Shared *SharedTraffic `json:"shared,omitempty"`
	// Build is what a plan builds first; nil for other releases.
	Build *build.Order `json:"build,omitempty"`
	// Served is the revision that the newest Healthy record names; nil unless an earlier check has asked for it.
	Served *strategy.Revision `json:"served,omitempty"`
	// PodLabels are the labels of the new version's pod template, as the party's worker finds them; nil while they are
	// not known. They are not sent.
	PodLabels map[string]string `json:"-"`
}

// SharedTraffic is what a TrafficRouting asks for: its routings, used without canary Services.
type SharedTraffic struct {
	Name     string             `json:"name"`
	Routings []strategy.Routing `json:"routings"`
	Traffic  strategy.Traffic   `json:"traffic"`
}

// PreflightResult lists what cannot be done; no refusals: everything can.
type PreflightResult struct {
	Refusals []Refusal `json:"refusals,omitempty"`
	// Notices do not block the rollout, but the user should know them before it starts.
	Notices []string `json:"notices,omitempty"`
	// Holder is the claim of another release on the workload or on an object that routes to it, and HeldObject that
	// object; "" if it is free.
	Holder     string `json:"holder,omitempty"`
	HeldObject string `json:"on,omitempty"`
	// Frozen is true if the workload has a frozen split of an earlier release: this release rolls it back first.
	Frozen bool `json:"frozen,omitempty"`
	// Unsettled is why the release has to wait before it begins, for policy.settleSeconds: the workload's own update is
	// still under way. "": it is not.
	Unsettled string `json:"unsettled,omitempty"`
	// StableUnknown is true if the workload's own update hangs and no pod shows which revision is the stable one: a
	// record may (PreflightRequest.Served). That is refused, too.
	StableUnknown bool `json:"stableUnknown,omitempty"`
	// Replicas is the workload's size; 0: unknown.
	Replicas int32 `json:"replicas,omitempty"`
	// Template is the digest of the workload's current pod template, "" while something of an earlier release is on it.
	Template string `json:"template,omitempty"`
	// AlreadyDeployed is true if the workload is of the new version already. That is refused, too.
	AlreadyDeployed bool `json:"same,omitempty"`
	// Predicted is the new pod template; nil: it cannot be predicted yet.
	Predicted *PredictedTemplate `json:"foreseen,omitempty"`
	// Revision is what the cluster has of Change.Revision; nil if the request names none, or if it is refused.
	Revision *strategy.Revision `json:"revision,omitempty"`
	// Unchecked is why the rollout could not be checked; the other fields are empty then.
	Unchecked string `json:"unanswered,omitempty"`
}

// Refusal is one thing that cannot be done. Field is the JSON path within the POST's body
// ("strategy.canary.steps[1].matches"), "" for the body as a whole. For a plan's rollout it is the key of the plan's
// item if that is at fault (source.KeyPackage).
type Refusal struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// BeginRequest asks for the claim.
type BeginRequest struct {
	Subject
	Strategy strategy.Strategy `json:"strategy"`
	Change   strategy.Change   `json:"change"`
	// Adopt is true if a saved state that exists already (a frozen split, a dead rollout) is only taken over: the
	// caller rolls it back next.
	Adopt bool `json:"adopt,omitempty"`
	// Served is PreflightRequest.Served.
	Served *strategy.Revision `json:"served,omitempty"`
	// Unsettled is what to do with a workload whose own update is still under way; "": refuse it.
	Unsettled Unsettled `json:"unsettled,omitempty"`
	// AskSaved is true if Begin fails with the claim of a saved state that no release holds, as with that of a holder,
	// until TakeOver names it: the centre knows whether it is a frozen split or a copy of one that is long finished.
	AskSaved bool `json:"askSaved,omitempty"`
}

// Unsettled is what Begin does with a workload whose own update is still under way, for example right after `kubectl
// apply`.
type Unsettled string

// What Begin can do: return BeginResult.Unsettled at once, or wait for the end of the update, for DeadlineSeconds at
// most.
const (
	UnsettledReport Unsettled = "tell"
	UnsettledWait   Unsettled = "wait"
)

// BeginResult is the workload as Begin found it.
type BeginResult struct {
	Replicas int32 `json:"replicas"`
	// Stable is Saved.Stable, StableHash the value of the pods' revision label (see RevisionLabel).
	Stable     string `json:"stable"`
	StableHash string `json:"stableHash"`
	Generation int64  `json:"generation"`
	// UID is the workload's UID.
	UID string `json:"uid,omitempty"`
	// StableTemplate is the digest of the pod template that serves, StableImages are its images by container.
	StableTemplate string            `json:"stableTemplate,omitempty"`
	StableImages   map[string]string `json:"stableImages,omitempty"`
	// StablePackage is the SHA-256 of the code package that the stable version runs, "" when it runs none.
	StablePackage string `json:"stablePackage,omitempty"`
	// AlreadyComplete is true if every pod already runs the version that the workload declares: there are no steps to
	// go through.
	AlreadyComplete bool `json:"whole,omitempty"`
	// TemplateWritten is true if the workload may have the new template already: the write that took the claim also
	// began the Move.
	TemplateWritten bool `json:"placed,omitempty"`
	// Adopted is what an earlier release left on the workload. Only the claim was taken: finalise it to stable, then
	// begin again.
	Adopted *Adopted `json:"adopted,omitempty"`
	// Over is the revision of the workload's own update that hung, if the release began over one.
	Over string `json:"over,omitempty"`
	// Unsettled is set if nothing was done because the workload's own update is still under way, and the request was
	// UnsettledReport.
	Unsettled string `json:"unsettled,omitempty"`
	Message   string `json:"message"`
}

// Adopted is the part of Saved that decides how an earlier release is rolled back.
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
	// Replicas is how many pods have to be of the new version.
	Replicas intstr.IntOrString `json:"replicas"`
	// Change makes the new template, in the first Move only. Template is that template's digest once it is known.
	Change   strategy.Change `json:"change"`
	Template string          `json:"template,omitempty"`
	// OverwriteDrift replaces a template that another client has edited by this release's (verb retry after drift).
	OverwriteDrift   bool                `json:"putBack,omitempty"`
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// Settle is true if the step pauses afterwards: a Deployment is left paused, with its own settings, and
	// AnnotationSettled is written.
	Settle bool `json:"rest,omitempty"`
	// Native is true if no step from this one on pauses or moves traffic except the last, which takes all pods. The
	// workload's own controller replaces every pod, with the workload's own settings. The Move ends as soon as Replicas
	// of them are ready.
	Native bool `json:"native,omitempty"`
	// Halt only settles what an interrupted Move has left: it moves no pod, and waits for nothing of the step.
	Halt bool `json:"halt,omitempty"`
	// Back moves pods to the stable version instead: Replicas of those that were new when the rollback began (From).
	// Only StylePartition.
	Back bool  `json:"back,omitempty"`
	From int32 `json:"from,omitempty"`
	// CanaryMetadata is for StyleCanary.
	CanaryMetadata *strategy.PodMetadata `json:"canaryMetadata,omitempty"`
	// KeepStable is true if the stable Service is pinned to the stable pods: one of them is kept, even if the workload
	// was scaled to one.
	KeepStable bool `json:"keepStable,omitempty"`
	// Inspect is true if the pods should be where they have to be already, and a change by another client is inspected.
	// An edited template or a deleted workload fails with failure.Drift and failure.Gone; a new size is followed.
	Inspect bool `json:"look,omitempty"`
	// Batch numbers the pods that the Move creates, by labels; nil: they are not numbered.
	Batch *Batch `json:"batch,omitempty"`
	// Predicted is the new template as the preflight predicted it; nil: unknown.
	Predicted *PredictedTemplate `json:"foreseen,omitempty"`
	// ReportStuck makes the Move return MoveResult.Stuck as soon as a new pod is in trouble, or none has appeared for
	// long. The workflow publishes that and repeats the Move.
	ReportStuck bool `json:"tellStuck,omitempty"`
}

// Batch is how a release numbers the pods of a step. RolloutID "" is the new revision: the value of its pods' label.
type Batch struct {
	RolloutID string `json:"rolloutId,omitempty"`
	// Only is true if the step creates no pod, because every pod is of the released version already: as many pods get a
	// number as the plan has.
	Only bool `json:"only,omitempty"`
	// Step is the number of the step, from 1. Plan has the replicas of the steps up to it: pods that another size adds
	// in the middle of a release belong to the steps that would have created them. Without it, all are of Step.
	Step int                  `json:"step,omitempty"`
	Plan []intstr.IntOrString `json:"plan,omitempty"`
}

// MoveResult is the state of the pods. A failure of kind WorkloadFailed carries the same numbers in its details.
type MoveResult struct {
	// Replicas is the workload's size, Target the number of new pods that was asked for.
	Replicas     int32 `json:"replicas"`
	Target       int32 `json:"target"`
	Updated      int32 `json:"updated"`
	UpdatedReady int32 `json:"updatedReady"`
	StableReady  int32 `json:"stableReady"`
	// Canary is the new revision in the form of Saved.Canary, CanaryHash the value of its pods' revision label.
	Canary     string `json:"canary"`
	CanaryHash string `json:"canaryHash"`
	// Template is the digest of the new pod template as the API server keeps it, Images are its images by container
	// once it has a revision.
	Template   string            `json:"template"`
	Images     map[string]string `json:"images,omitempty"`
	Generation int64             `json:"generation"`
	Message    string            `json:"message"`
	// Stuck is set if the Move has not ended because a pod is in trouble that may pass ("pod a: ImagePullBackOff").
	// SpentSeconds is the time that it has used.
	Stuck        string `json:"stuck,omitempty"`
	SpentSeconds int64  `json:"spentSeconds,omitempty"`
	// Released is the version of a workload that a Finish has found already released, if it is not the version that was
	// asked for.
	Released Side `json:"released,omitempty"`
}

// RouteAction is one change of the traffic.
type RouteAction = FinalMove

// The changes. Each is level-based: repeating it changes nothing.
const (
	// RoutePin pins the stable Service to the stable revision.
	RoutePin RouteAction = "PinStableService"
	// RouteEnsure creates the canary Service and makes the routes split as RouteRequest.Traffic demands.
	RouteEnsure RouteAction = "EnsureRoutes"
	// RouteUnpin restores the stable Service's own selector (RestoreStableService).
	RouteUnpin RouteAction = "RestoreStableService"
	// RouteToStable restores the routing objects to their original state (FinalisingStepRouteTrafficToStable).
	RouteToStable RouteAction = "RouteTrafficToStable"
	// RouteToNew sends all traffic to the new version (FinalisingStepRouteTrafficToNew).
	RouteToNew RouteAction = "RouteTrafficToNew"
	// RouteRemoveCanary deletes the canary Services (RemoveCanaryService).
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
	// Overwrite replaces what another client has edited meanwhile (verb retry after drift). Without it that fails with
	// failure.Drift.
	Overwrite bool `json:"overwrite,omitempty"`
	// Declared is true if the workload itself declares what is released: annotations that Kruise's tools look for are
	// written on custom objects.
	Declared bool `json:"declared,omitempty"`
	// LeaveOut leaves out the routes that cannot express the traffic's matches, if another one can, and a DestinationRule
	// of another host. Without it that is refused.
	LeaveOut bool `json:"leaveOut,omitempty"`
	// Restores reverts a change by another client, and does not wait long for pods: the same client may have removed
	// those that it needs.
	Restores bool `json:"restores,omitempty"`
}

// RouteResult says what was done.
type RouteResult struct {
	// Modified is true if something was written: the routes then need GraceSeconds to take effect.
	Modified     bool   `json:"modified"`
	GraceSeconds int64  `json:"graceSeconds,omitempty"`
	Message      string `json:"message"`
	// MissingPods is what a Restores would have had to wait for; "" when the change is made and in effect.
	MissingPods string `json:"lacks,omitempty"`
	// LeftOut names the routes that were left out, each with the reason.
	LeftOut []string `json:"leftOut,omitempty"`
}

// FinishAction is one move of finalising on the workload.
type FinishAction = FinalMove

// The moves.
const (
	// FinishResume restores the workload's settings, and waits until every pod is of one version: the new or the stable
	// one.
	FinishResume FinishAction = "ResumeWorkload"
	// FinishRelease deletes the extra workload and everything of this release from the workload, the claim last.
	FinishRelease FinishAction = "ReleaseWorkloadControl"
	// FinishFreeze releases the claim and leaves everything else: the split stays (stop to frozen).
	FinishFreeze FinishAction = "Freeze"
	// FinishResumeAndRelease is both in one, for a rollout without traffic.
	FinishResumeAndRelease FinishAction = "ResumeAndRelease"
	// FinishAutoscalers restores the limits of the autoscalers of a deleted workload, even if another workload has its
	// name by now.
	FinishAutoscalers FinishAction = "RestoreAutoscalers"
)

// Side is the version that a release ends at.
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
	// Template is the digest of the new template, for To new: an edit by another client is drift. "": not checked.
	Template string `json:"template,omitempty"`
	// StableTemplate is the digest of the stable template, "" if it is unknown.
	StableTemplate string `json:"stableTemplate,omitempty"`
	// Change is for a rollout that is finished to new before its first Move has set the template.
	Change strategy.Change `json:"change"`
	// OverwriteDrift: as in MoveRequest.
	OverwriteDrift bool `json:"putBack,omitempty"`
	// ExtraReplicas is the share of pods that the extra workload of StyleCanary serves with until the workload itself
	// is of the new version. It grows with the workload. nil: the extra workload keeps its size.
	ExtraReplicas *intstr.IntOrString `json:"extra,omitempty"`
	// Batch numbers the pods once all are of the new version; nil: they have their numbers.
	Batch *Batch `json:"batch,omitempty"`
	// Predicted: as in MoveRequest.
	Predicted *PredictedTemplate `json:"foreseen,omitempty"`
}

// PredictedTemplate is a prediction of a workload's new pod template: the digest that the API server would give it,
// made from the template with the digest From.
type PredictedTemplate struct {
	UID      string `json:"uid"`
	From     string `json:"of"`
	Template string `json:"template"`
}

// Digest returns the new template's digest for a workload with this UID and this live template digest; "" if the
// prediction is of something else, or nil.
func (f *PredictedTemplate) Digest(uid, template string) string {
	if f == nil || f.UID != uid || template != f.From && template != f.Template {
		return ""
	}
	return f.Template
}

// HoldTrafficRequest asks for a place among the holders of a TrafficRouting of the home cluster.
type HoldTrafficRequest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Holder is the rollout's claim.
	Holder string `json:"holder"`
	// DeadlineSeconds is how long to wait for another release that restores the routes; 0: without a limit.
	DeadlineSeconds int64 `json:"deadlineSeconds,omitempty"`
}

// HoldTrafficResult is what the TrafficRouting asks for.
type HoldTrafficResult struct {
	Shared SharedTraffic `json:"shared"`
	// Claim is the claim under which its routes are written, the same for all holders.
	Claim string `json:"claim"`
}

// LeaveTrafficRequest removes a holder. Restored is true if it was asked to restore the routes, and has done so.
type LeaveTrafficRequest struct {
	HoldTrafficRequest
	Restored bool `json:"restored,omitempty"`
}

// LeaveTrafficResult is what the leaving holder has to do. If the TrafficRouting was deleted, its routes are restored
// from what is saved.
type LeaveTrafficResult struct {
	// Restore is true if no other holder is left: restore the routes of Shared, then leave with Restored.
	Restore bool          `json:"restore"`
	Shared  SharedTraffic `json:"shared"`
	Claim   string        `json:"claim"`
}

// CompleteRequest names the record of a rollout that has ended, and its workflow.
type CompleteRequest struct {
	Record     string `json:"record"`
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// Party, Namespace, Name are the subject whose old records are pruned.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Status is the final status, where the request is not part of a history; nil: it is read from the workflow.
	Status *Status `json:"status,omitempty"`
}

// SignalObserved carries Observed: a party's watch reports to the release that another client has changed a claimed
// workload while it pauses.
const SignalObserved = "slipway.observed"

// Observed is what a watch has noticed. It is a hint: the workflow inspects the workload, or what routes to it.
type Observed struct {
	// What is "edited", "scaled", "deleted" (of the workload) or one of the constants below.
	What string `json:"what"`
	// Message describes it in a sentence.
	Message string `json:"message"`
	// By is the client that did it, as the object's managedFields name it; "" if they do not.
	By string `json:"by,omitempty"`
	// Claim is the claim on the object, and Object the object ("Deployment shop/web"). Every client that may edit the
	// object can write a claim onto it, so the release checks that both are its own.
	Claim  string `json:"claim,omitempty"`
	Object string `json:"object,omitempty"`
}

// The other values of Observed.What.
const (
	// ObservedSettings: another client has changed fields that the release has borrowed. They are restored.
	ObservedSettings = "settings"
	// ObservedRoutes: another client has changed, or deleted, an object that routes to the workload. It is restored.
	ObservedRoutes = "routes"
	// ObservedUnpinned: the party's worker has restored a Service's own selector, because none of the pods that it was
	// pinned to was ready. ObservedUnrouted: it has restored routes, because no pod of the new version was ready.
	ObservedUnpinned = "unpinned"
	ObservedUnrouted = "unrouted"
)

// MaxRestores is how often changes by another client are reverted at one step. After that the rollout waits for an
// operator.
const MaxRestores = 5
