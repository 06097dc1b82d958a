package serving

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// View is a serving as shown to users: its desired state, its observed state and its current operation.
type View struct {
	ID string `json:"id"`
	// Generation is the generation of the spec, ServedGeneration that of the last version that all parties have run; 0
	// if there is none.
	Generation       int64        `json:"generation"`
	ServedGeneration int64        `json:"servedGeneration,omitempty"`
	Initiator        string       `json:"initiator"`
	AffinityMode     string       `json:"affinityMode,omitempty"`
	Phase            kuscia.Phase `json:"phase"`
	Reason           string       `json:"reason"`
	Message          string       `json:"message"`
	// Conditions report the same to programs; they are computed when the serving is returned.
	Conditions       []metav1.Condition `json:"conditions,omitempty"`
	TotalParties     int                `json:"totalParties"`
	AvailableParties int                `json:"availableParties"`
	// Parties are in the order of the spec.
	Parties []PartyView `json:"parties"`
	// Spec is the spec that the parties are of; nil where many servings are shown.
	Spec      *kuscia.KusciaDeploymentSpec `json:"spec,omitempty"`
	Operation *OperationView               `json:"operation,omitempty"`
	// Policy has its defaults filled in; nil if the annotation cannot be parsed.
	Policy    *Policy   `json:"policy,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// UpdatedAt is when its status was last written.
	UpdatedAt *time.Time `json:"updatedAt,omitempty"`
	// DeletedAt is when the deletion was requested, while it is still in progress.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
}

// PartyView is one party of a View.
type PartyView struct {
	Domain string `json:"domain"`
	Role   string `json:"role,omitempty"`
	// Queue is the task queue of the party's worker; "" if the party is unknown.
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
	// Version is the digest of the version that its Deployment is configured to run.
	Version string `json:"version,omitempty"`
	// Missing are its objects that another client has deleted. Unreachable is why its worker is considered unreachable.
	Missing     []string `json:"missing,omitempty"`
	Unreachable string   `json:"away,omitempty"`
}

// OperationView is the current or the last operation on a serving.
type OperationView struct {
	Kind       string     `json:"kind"`
	Generation int64      `json:"generation"`
	Done       bool       `json:"done"`
	Reason     string     `json:"reason"`
	Message    string     `json:"message"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	// WaitingFor is nil if the operation waits for no user. History lists the commands of users, oldest first; only the
	// newest are kept.
	WaitingFor *kuscia.WaitingFor  `json:"waitingFor,omitempty"`
	History    []kuscia.AuditEntry `json:"history,omitempty"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64              `json:"refusalsDropped,omitempty"`
	Workflow        *audit.WorkflowRef `json:"workflow,omitempty"`
}

// DisplayedPending is how PhasePending, which is stored as "", is shown to users.
const DisplayedPending kuscia.Phase = "Pending"

// ViewContext is what a View takes from outside of its KusciaDeployment.
type ViewContext struct {
	// Images are the existing AppImages by name; Queues are the task queues of the known domains.
	Images map[string]kuscia.AppImageSpec
	Queues map[string]string
}

// NewView returns the view of a serving in its current state.
func NewView(kd *kuscia.KusciaDeployment, env ViewContext) (View, error) {
	version, err := DisplayedVersion(kd, env.Images)
	if err != nil {
		return View{}, err
	}
	st := kd.Status
	view := View{
		ID: kd.Name, Generation: kd.Generation, Initiator: version.Spec.Initiator,
		AffinityMode: kd.Annotations[kuscia.AnnotationAffinityMode],
		Phase:        cmp.Or(st.Phase, DisplayedPending), Reason: st.Reason, Message: st.Message,
		TotalParties: len(version.Spec.Parties), AvailableParties: st.AvailableParties,
		Parties:   make([]PartyView, len(version.Spec.Parties)),
		Operation: showOperation(st.Operation), Policy: showPolicy(kd),
		CreatedAt: kd.CreationTimestamp.UTC(), UpdatedAt: utcTime(st.LastReconcileTime),
		DeletedAt: utcTime(kd.DeletionTimestamp),
	}
	if st.Served != nil {
		view.ServedGeneration = st.Served.Generation
	}
	if Outdated(kd) {
		view.Phase, view.AvailableParties = kuscia.PhaseProgressing, 0
		view.Reason, view.Message = Refusal(kd)
		if view.Reason == "" {
			view.Message = fmt.Sprintf("no operation has started for generation %d of the spec yet", kd.Generation)
		}
	}
	if kd.DeletionTimestamp != nil && Outdated(kd) { // a deletion counts as a generation
		view.Message = "its deletion has not started yet"
	}
	for i := range version.Spec.Parties {
		view.Parties[i] = showParty(kd, version, i)
		view.Parties[i].Queue = env.Queues[view.Parties[i].Domain]
	}
	return view, nil
}

// DisplayedVersion returns the version to show: the requested one or, after a failed update, the one that serves.
// Editing or deleting an AppImage does not change running parties: as long as only the served version is applied, its
// AppImages are shown as they were then.
func DisplayedVersion(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) (Version, error) {
	if kd.Status.Served == nil {
		return Snapshot(kd, images), nil
	}
	served, err := Unpack(kd.Status.Served.Version)
	if err != nil || RolledBack(kd) {
		return served, err
	}
	first, then := served.AppImages, images
	op := kd.Status.Operation
	if !Outdated(kd) && (op == nil || op.Done || op.Version == kd.Status.Served.Digest) {
		first, then = then, first // no operation applies, or is about to apply, another version
	}
	known := map[string]kuscia.AppImageSpec{}
	maps.Copy(known, first)
	maps.Copy(known, then)
	return Snapshot(kd, known), nil
}

// RolledBack reports whether an update failed and the version before it serves. A newer spec makes it false.
func RolledBack(kd *kuscia.KusciaDeployment) bool {
	return kd.Status.Reason == ReasonUpdateRolledBack && kd.Status.Served != nil && !Outdated(kd)
}

// Outdated reports whether the status is older than the spec: a client that polls for Available must not see the phase
// of an earlier generation.
func Outdated(kd *kuscia.KusciaDeployment) bool {
	return kd.Status.ObservedGeneration > 0 && kd.Status.ObservedGeneration < kd.Generation
}

// Refusal returns why the spec cannot be run after the current operation; "" if there is no known reason.
func Refusal(kd *kuscia.KusciaDeployment) (reason, message string) {
	refused := kd.Status.Refused
	if refused == nil || refused.Generation != kd.Generation {
		return "", ""
	}
	return ReasonValidateFailed, fmt.Sprintf("generation %d of the spec cannot be run, and the current operation "+
		"continues: %s", refused.Generation, refused.Message)
}

func utcTime(at *metav1.Time) *time.Time {
	if at == nil {
		return nil
	}
	return new(at.UTC())
}

// showParty returns the view of a party. If the party has not been observed yet, only its desired state is known.
func showParty(kd *kuscia.KusciaDeployment, v Version, index int) PartyView {
	p := v.Spec.Parties[index]
	view := PartyView{Domain: p.DomainID, Role: p.Role, AppImage: p.AppImageRef, Deployment: DeploymentName(kd.Name,
		p.Role), Endpoints: append([]Endpoint{}, Endpoints(v, index)...)}
	st := kd.Status.PartyDeploymentStatuses[p.DomainID][view.Deployment]
	view.Phase, view.Reason, view.Message, view.Unreachable = cmp.Or(st.Phase, DisplayedPending), st.Reason, st.Message,
		st.Unreachable
	if st.ObservedAt == nil {
		view.Replicas = v.Replicas(index)
		return view
	}
	view.Replicas, view.UpdatedReplicas, view.AvailableReplicas = st.Replicas, st.UpdatedReplicas, st.AvailableReplicas
	view.Version, view.Missing = st.Version, st.Missing
	if Outdated(kd) { // replica counts from before an update are never shown for the new spec
		view.UpdatedReplicas = 0
		if view.Phase != DisplayedPending {
			view.Phase, view.Reason, view.Message = kuscia.PhaseProgressing, "", ""
		}
	}
	return view
}

func showOperation(op *kuscia.Operation) *OperationView {
	if op == nil {
		return nil
	}
	view := &OperationView{Kind: op.Kind, Generation: op.Generation, Done: op.Done, Reason: op.Reason,
		Message: op.Message, StartedAt: utcTime(op.StartedAt), WaitingFor: op.WaitingFor, History: op.History,
		RefusalsDropped: op.RefusalsDropped}
	if op.WorkflowID != "" {
		view.Workflow = &audit.WorkflowRef{ID: op.WorkflowID, RunID: op.RunID}
	}
	return view
}

// showPolicy returns the policy with its defaults filled in; nil if the annotation cannot be parsed, for which the next
// operation is refused.
func showPolicy(kd *kuscia.KusciaDeployment) *Policy {
	policy, wrong := DecodePolicy([]byte(kd.Annotations[AnnotationPolicy]))
	if len(wrong) > 0 {
		return nil
	}
	return new(policy.withDefaults())
}

// ReleaseState is the state of an operation on a serving, or how it ended.
type ReleaseState string

// The states; all except StateProgressing are final.
const (
	StateProgressing ReleaseState = "Progressing"
	// StateSucceeded: every party reached the requested state.
	StateSucceeded ReleaseState = "Succeeded"
	// StateRolledBack: the operation failed or was stopped, and every party runs the previous version.
	StateRolledBack ReleaseState = "RolledBack"
	StateFailed     ReleaseState = "Failed"
	// StateSuperseded: the operation gave way to a newer one, which continued from the current state of the parties.
	StateSuperseded ReleaseState = "Superseded"
)

// ReleaseRequest is the snapshot in an operation's record: the workflow run that began it, and its input.
type ReleaseRequest struct {
	WorkflowID string    `json:"workflowId"`
	RunID      string    `json:"runId"`
	StartedAt  time.Time `json:"startedAt"`
	// Input has no Previous: that is the Target of an earlier record, identified by its digest.
	Input Input `json:"input"`
}

// NewReleaseRequest returns the snapshot for the record of an operation.
func NewReleaseRequest(in Input, op kuscia.Operation, started time.Time) ReleaseRequest {
	in.Previous, in.Continued = nil, nil
	return ReleaseRequest{WorkflowID: op.WorkflowID, RunID: op.RunID,
		StartedAt: started.UTC().Truncate(time.Microsecond), Input: in}
}

// operationsPerGeneration is the assumed maximum number of operations for one generation: usually there is one, unless
// users request it again.
const operationsPerGeneration = 10

// BelowRecordLimit reports whether a serving cannot yet have more operations than the keep records to retain, so that
// no record needs to be pruned. Finding out otherwise makes the API server scan the records of all subjects. Records
// left behind by an earlier serving of the same name are pruned with the next deletion.
func BelowRecordLimit(in Input, keep int) bool {
	applies := in.Kind == KindCreate || in.Kind == KindUpdate
	return applies && in.Generation > 0 && in.Generation <= int64(keep/operationsPerGeneration)
}

// Ending is how an operation ended.
type Ending struct {
	State   ReleaseState `json:"state"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message"`
	At      time.Time    `json:"at"`
	// History lists the commands of users, oldest first; only the newest are kept. RefusalsDropped is the number of
	// refused ones that it no longer has.
	History         []kuscia.AuditEntry `json:"history,omitempty"`
	RefusalsDropped int64               `json:"refusalsDropped,omitempty"`
}

// Ending returns how the operation ended, at that time.
func (m *Machine) Ending(now time.Time) Ending {
	end := Ending{State: StateFailed, Reason: m.s.Reason, Message: m.Message(), At: now.UTC(),
		History: m.History(), RefusalsDropped: m.s.Log.RefusalsDropped}
	switch {
	case m.Superseded():
		end.State, end.Reason = StateSuperseded, ""
	case m.s.Reason == ReasonUpdateRolledBack:
		end.State = StateRolledBack
	case m.s.Reason == "":
		end.State = StateSucceeded
	}
	return end
}

// Release is one operation on a serving in its history: its request, and its state or how it ended.
type Release struct {
	ID         string       `json:"id"`
	Kind       string       `json:"kind"`
	Generation int64        `json:"generation"`
	State      ReleaseState `json:"state"`
	// Reason is one word for the cause of a failure, "" if there is none. Message describes what the operation does or
	// how it ended.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Version and Previous are the digests of the requested version and of the version that served before; "" if there
	// is none.
	Version  string         `json:"version,omitempty"`
	Previous string         `json:"previous,omitempty"`
	Parties  []ReleaseParty `json:"parties"`
	Policy   Policy         `json:"policy"`
	// StartedAt is when its workflow began, FinishedAt when it ended; nil while it is running.
	StartedAt  time.Time          `json:"startedAt"`
	FinishedAt *time.Time         `json:"finishedAt,omitempty"`
	WaitingFor *kuscia.WaitingFor `json:"waitingFor,omitempty"`
	// History lists the commands of users, oldest first; only the newest are kept.
	History []kuscia.AuditEntry `json:"history"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64              `json:"refusalsDropped,omitempty"`
	Workflow        *audit.WorkflowRef `json:"workflow,omitempty"`
	// Record is the name of its ReleaseRecord.
	Record string `json:"record"`
}

// ReleaseParty is a party of an operation and what it was requested to run.
type ReleaseParty struct {
	Domain string `json:"domain"`
	Role   string `json:"role,omitempty"`
	// AppImage is the name of the requested AppImage, Image its image at that time; both are "" for a deletion.
	AppImage string `json:"appImage,omitempty"`
	Image    string `json:"image,omitempty"`
}

// Release returns the release as requested, with no known progress yet.
func (a ReleaseRequest) Release() Release {
	in := a.Input
	r := Release{ID: in.ID, Kind: in.Kind, Generation: in.Generation, State: StateProgressing, Message: "it has begun",
		Version: in.TargetDigest, Previous: in.PreviousDigest, Parties: make([]ReleaseParty, len(in.Parties)),
		Policy: in.Policy.withDefaults(), StartedAt: a.StartedAt, History: []kuscia.AuditEntry{},
		Workflow: &audit.WorkflowRef{ID: a.WorkflowID, RunID: a.RunID}}
	if in.Cause != "" {
		r.Message += ", to restore what other clients changed: " + in.Cause
	}
	version, err := Unpack(in.Target)
	for i, p := range in.Parties {
		r.Parties[i] = ReleaseParty{Domain: p.Domain, Role: p.Role}
		// a deletion requests no version
		if place, has := version.PartyIndex(p.Domain, p.Deployment); has && err == nil {
			name := version.Spec.Parties[place].AppImageRef
			image := version.AppImages[name].Image
			r.Parties[i].AppImage, r.Parties[i].Image = name, image.Name+":"+image.Tag
		}
	}
	return r
}

// Ended returns the release with its ending.
func (r Release) Ended(end Ending) Release {
	r.State, r.Reason, r.Message, r.FinishedAt, r.WaitingFor = end.State, end.Reason, end.Message, &end.At, nil
	if end.History != nil {
		r.History, r.RefusalsDropped = end.History, end.RefusalsDropped
	}
	return r
}

// Includes reports whether a finished release contains everything of an ending. The first ending is kept, unless a
// command was received just before the workflow closed.
func (r Release) Includes(end Ending) bool {
	return int64(len(end.History))+end.RefusalsDropped <= int64(len(r.History))+r.RefusalsDropped
}
