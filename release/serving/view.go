package serving

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
)

// View is a serving as people see it: what is asked, how it is, and what is being done about it.
type View struct {
	ID string `json:"id"`
	// Generation is that of what is asked, ServedGeneration that of what all parties came to run last; 0 when they never did.
	Generation       int64        `json:"generation"`
	ServedGeneration int64        `json:"servedGeneration,omitempty"`
	Initiator        string       `json:"initiator"`
	AffinityMode     string       `json:"affinityMode,omitempty"`
	Phase            kuscia.Phase `json:"phase"`
	Reason           string       `json:"reason"`
	Message          string       `json:"message"`
	// Conditions say the same for programs; they are derived when the serving is answered.
	Conditions       []metav1.Condition `json:"conditions,omitempty"`
	TotalParties     int                `json:"totalParties"`
	AvailableParties int                `json:"availableParties"`
	// Parties are in the order of the spec.
	Parties   []PartyView    `json:"parties"`
	Operation *OperationView `json:"operation,omitempty"`
	// Policy has its defaults filled in; nil: the annotation cannot be read.
	Policy    *Policy   `json:"policy,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// UpdatedAt is when its status was last written.
	UpdatedAt *time.Time `json:"updatedAt,omitempty"`
	// DeletedAt is when somebody asked for its deletion, which is not over yet.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
}

// PartyView is one party of a View.
type PartyView struct {
	Domain string `json:"domain"`
	Role   string `json:"role,omitempty"`
	// Queue is where its worker is found; "" when nobody knows the party.
	Queue             string       `json:"queue,omitempty"`
	AppImage          string       `json:"appImage"`
	Deployment        string       `json:"deployment"`
	Phase             kuscia.Phase `json:"phase"`
	Reason            string       `json:"reason"`
	Message           string       `json:"message"`
	Replicas          int32        `json:"replicas"`
	UpdatedReplicas   int32        `json:"updatedReplicas"`
	AvailableReplicas int32        `json:"availableReplicas"`
	Endpoints         []Endpoint   `json:"endpoints"`
	// Version is the digest of what its Deployment is told to run.
	Version string `json:"version,omitempty"`
	// Missing are its objects that somebody else has deleted. Unreachable says why its worker is thought not to be there.
	Missing     []string `json:"missing,omitempty"`
	Unreachable string   `json:"away,omitempty"`
}

// OperationView is what is being done about a serving, or was done last.
type OperationView struct {
	Kind       string     `json:"kind"`
	Generation int64      `json:"generation"`
	Done       bool       `json:"done"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	// WaitingFor is nil when it waits for nobody. History is what people have sent, oldest first; of many the newest.
	WaitingFor *kuscia.WaitingFor  `json:"waitingFor,omitempty"`
	History    []kuscia.AuditEntry `json:"history,omitempty"`
	Workflow   *plan.WorkflowRef   `json:"workflow,omitempty"`
}

// ShownPending is how PhasePending, which is stored as "", is written for people.
const ShownPending kuscia.Phase = "Pending"

// Surroundings are what a View takes from elsewhere than its KusciaDeployment.
type Surroundings struct {
	// Images are the AppImages that exist, by name; Queues those of the domains that are known.
	Images map[string]kuscia.AppImageSpec
	Queues map[string]string
}

// Show is the view of a serving as it is now.
func Show(kd *kuscia.KusciaDeployment, around Surroundings) (View, error) {
	version, err := Shown(kd, around.Images)
	if err != nil {
		return View{}, err
	}
	st := kd.Status
	view := View{
		ID: kd.Name, Generation: kd.Generation, Initiator: version.Spec.Initiator,
		AffinityMode: kd.Annotations[kuscia.AnnotationAffinityMode],
		Phase:        cmp.Or(st.Phase, ShownPending), Reason: st.Reason, Message: st.Message,
		TotalParties: len(version.Spec.Parties), AvailableParties: st.AvailableParties, Parties: make([]PartyView, len(version.Spec.Parties)),
		Operation: showOperation(st.Operation), Policy: showPolicy(kd),
		CreatedAt: kd.CreationTimestamp.UTC(), UpdatedAt: shownTime(st.LastReconcileTime), DeletedAt: shownTime(kd.DeletionTimestamp),
	}
	if st.Served != nil {
		view.ServedGeneration = st.Served.Generation
	}
	if Outdated(kd) {
		view.Phase, view.AvailableParties = kuscia.PhaseProgressing, 0
		view.Reason, view.Message = Refusal(kd)
		if view.Reason == "" {
			view.Message = fmt.Sprintf("generation %d of its spec has not been begun with yet", kd.Generation)
		}
	}
	if kd.DeletionTimestamp != nil && Outdated(kd) { // a deletion counts as a generation
		view.Message = "its deletion has not been begun with yet"
	}
	for i := range version.Spec.Parties {
		view.Parties[i] = showParty(kd, version, i)
		view.Parties[i].Queue = around.Queues[view.Parties[i].Domain]
	}
	return view, nil
}

// Shown is the version that is shown: what is asked or, after a failed update, what serves. An AppImage that was edited or deleted since
// changes nothing that runs: while nothing else is applied, it is shown as it serves.
func Shown(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) (Version, error) {
	if kd.Status.Served == nil {
		return Snapshot(kd, images), nil
	}
	served, err := Unpack(kd.Status.Served.Version)
	if err != nil || RolledBack(kd) {
		return served, err
	}
	known := map[string]kuscia.AppImageSpec{}
	if standsAsServed(kd) {
		maps.Copy(known, images)
		maps.Copy(known, served.AppImages)
	} else {
		maps.Copy(known, served.AppImages)
		maps.Copy(known, images)
	}
	return Snapshot(kd, known), nil
}

// standsAsServed says that nothing but the version that serves is being brought about.
func standsAsServed(kd *kuscia.KusciaDeployment) bool {
	op := kd.Status.Operation
	return !Outdated(kd) && (op == nil || op.Done || op.Version == kd.Status.Served.Digest)
}

// RolledBack says that an update failed and the version before it serves. Once there is a newer update, that is what counts.
func RolledBack(kd *kuscia.KusciaDeployment) bool {
	return kd.Status.Reason == ReasonUpdateRolledBack && kd.Status.Served != nil && !Outdated(kd)
}

// Outdated says that the status is of before the last update: whoever polls for Available must not find that.
func Outdated(kd *kuscia.KusciaDeployment) bool {
	return kd.Status.ObservedGeneration > 0 && kd.Status.ObservedGeneration < kd.Generation
}

// Refusal says why the spec cannot be begun with when what is under way is over; "" when nothing is known against it.
func Refusal(kd *kuscia.KusciaDeployment) (reason, message string) {
	refused := kd.Status.Refused
	if refused == nil || refused.Generation != kd.Generation {
		return "", ""
	}
	return ReasonValidateFailed,
		fmt.Sprintf("generation %d of its spec cannot be run, and what was under way goes on: %s", refused.Generation, refused.Message)
}

func shownTime(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	return new(at.UTC())
}

// showParty is how a party is. Of one that nobody has observed yet only what it is to be is known.
func showParty(kd *kuscia.KusciaDeployment, v Version, index int) PartyView {
	p := v.Spec.Parties[index]
	view := PartyView{Domain: p.DomainID, Role: p.Role, AppImage: p.AppImageRef, Deployment: DeploymentName(kd.Name, p.Role),
		Endpoints: append([]Endpoint{}, Endpoints(v, index)...)}
	st := kd.Status.PartyDeploymentStatuses[p.DomainID][view.Deployment]
	view.Phase, view.Reason, view.Message, view.Unreachable = cmp.Or(st.Phase, ShownPending), st.Reason, st.Message, st.Unreachable
	if st.ObservedAt == nil {
		view.Replicas = v.Replicas(index)
		return view
	}
	view.Replicas, view.UpdatedReplicas, view.AvailableReplicas = st.Replicas, st.UpdatedReplicas, st.AvailableReplicas
	view.Version, view.Missing = st.Version, st.Missing
	if Outdated(kd) { // numbers of before an update never count for after it
		view.UpdatedReplicas = 0
		if view.Phase != ShownPending {
			view.Phase, view.Reason, view.Message = kuscia.PhaseProgressing, "", ""
		}
	}
	return view
}

func showOperation(op *kuscia.Operation) *OperationView {
	if op == nil {
		return nil
	}
	view := &OperationView{Kind: op.Kind, Generation: op.Generation, Done: op.Done, Reason: op.Reason, Message: op.Message,
		StartedAt: shownTime(op.StartedAt), WaitingFor: op.WaitingFor, History: op.History}
	if op.WorkflowID != "" {
		view.Workflow = &plan.WorkflowRef{ID: op.WorkflowID, RunID: op.RunID}
	}
	return view
}

// showPolicy is the policy with its defaults filled in; nil when the annotation cannot be read, which the next operation is refused for.
func showPolicy(kd *kuscia.KusciaDeployment) *Policy {
	policy, wrong := DecodePolicy([]byte(kd.Annotations[AnnotationPolicy]))
	if len(wrong) > 0 {
		return nil
	}
	return new(policy.withDefaults())
}
