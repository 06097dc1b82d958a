package serving

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/workload"
)

// The activities of a party, on its own queue.
const (
	// ActivityPrepare checks, without a write, whether parties can run a version. GroupRequest → GroupResult.
	ActivityPrepare = "party.Prepare"
	// ActivityApply applies a version to parties and waits until they run it. GroupRequest → GroupResult.
	ActivityApply = "party.Apply"
	// ActivityCreate does both for all parties of an operation: it applies the version once all of them have passed the
	// check. GroupRequest → GroupResult.
	ActivityCreate = "party.Create"
	// ActivityRemove deletes all objects of a serving from parties. GroupRequest → GroupResult.
	ActivityRemove = "party.Remove"
	// ActivityCheck reports which Deployments of a list do not exist. CheckRequest → CheckResult.
	ActivityCheck = "party.Check"
)

const (
	// ActivityBegin records in the status that an operation has begun, and creates its record. NoteRequest →
	// BeginResult.
	ActivityBegin = "home.BeginServing"
	// ActivityNote writes the state of an operation to the status; when it has ended, it also completes its record.
	// NoteRequest → nothing.
	ActivityNote = "home.NoteServing"
	// ActivityRelease removes the finalizer of a deleted KusciaDeployment, and completes the record of its deletion.
	// NoteRequest → nothing.
	ActivityRelease = "home.ReleaseServing"
	// ActivityObserveMany stores observations of many servings in their statuses. ObserveManyRequest →
	// ObserveManyResult.
	ActivityObserveMany = "home.ObserveServings"
	// ActivityExpected lists the Deployments that a queue's worker should find in its cluster. ExpectedRequest →
	// ExpectedPage.
	ActivityExpected = "home.ExpectedServings"
)

// The signals of a Serving, and of a ServingStatuses.
const (
	// SignalSupersede asks an operation to give way to a newer one, which waits for it. SupersedeSignal.
	SignalSupersede = "supersede"
	// SignalGaveWay is the reply to SignalSupersede. No payload.
	SignalGaveWay = "gave-way"
	// SignalPresence reports whether a party's worker is reachable. PresenceSignal.
	SignalPresence = "presence"
	// SignalObservedMany sends observations of a party's worker to a ServingStatuses. []Observation.
	SignalObservedMany = "observed-many"
)

// TypeStatuses is the workflow type that writes observations of many servings to their statuses. []Observation →
// nothing.
const TypeStatuses = "ServingStatuses"

// TypeCheck is the workflow type by which a worker that has just started checks the expected Deployments.
// ExpectedRequest → nothing.
const TypeCheck = "ServingCheck"

// CheckWorkflowID returns the ID of the workflow that checks the Deployments that a worker of a queue should find in
// the namespaces that it serves; no namespaces mean all. Workers of one queue that serve different namespaces have
// different IDs.
func CheckWorkflowID(queue string, namespaces []string) string {
	id := "serving-check/" + queue
	if len(namespaces) == 0 {
		return id
	}
	return id + "/" + shortDigest([]byte(strings.Join(slices.Sorted(slices.Values(namespaces)), ",")))
}

// WorkflowPrefix returns the prefix of the workflow IDs of all operations on a serving. Each may take over the claims
// of its predecessors, which gave way.
func WorkflowPrefix(id string) string { return "serving/" + id + "/" }

// StatusesWorkflowID returns the ID of the workflow that writes the observations of a queue's workers to the statuses.
func StatusesWorkflowID(queue string) string { return "serving-statuses/" + queue }

// ReportsFor reports whether the workflow with an ID writes what the workers of a queue observe; none does for "".
func ReportsFor(workflowID, queue string) bool {
	check := CheckWorkflowID(queue, nil)
	return queue != "" && (workflowID == StatusesWorkflowID(queue) || workflowID == check ||
		strings.HasPrefix(workflowID, check+"/"))
}

// The kinds of operations on a serving.
const (
	KindCreate   = "create"
	KindUpdate   = "update"
	KindRecreate = "recreate"
	KindDelete   = "delete"
	// KindRefuse has no workflow: the spec cannot be run.
	KindRefuse = "refuse"
)

// Input is the input of a Serving workflow. Parties' workers read the versions from the first event of a run, so that
// they are transferred only once.
type Input struct {
	ID         string `json:"id"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Kind       string `json:"kind"`
	// Target is the packed requested Version, Previous the version to which the parties are rolled back on failure;
	// absent for a creation.
	Target         []byte        `json:"target,omitempty"`
	TargetDigest   string        `json:"targetDigest,omitempty"`
	Previous       []byte        `json:"previous,omitempty"`
	PreviousDigest string        `json:"previousDigest,omitempty"`
	Parties        []PartyTarget `json:"parties"`
	Policy         Policy        `json:"policy"`
	// Cause describes what other clients have deleted or changed and a recreation restores.
	Cause string `json:"cause,omitempty"`
	// UnreachableBudgetSeconds is how long a party's cluster may be unreachable for its worker before the activity
	// fails and is started again.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Continued is the state of the operation in a run that was continued as new; nil at a start.
	Continued *Continued `json:"continued,omitempty"`
	// Engine is the engine that runs the operation, for its claim.
	Engine workload.Engine `json:"engine,omitzero"`
}

// Continued is the state that an operation passes to its next run. No step of a party is running at that time.
type Continued struct {
	// Began is when its first run began.
	Began time.Time `json:"began"`
	// Begun is true when the operation is the serving's current one and its predecessor has given way. Otherwise the
	// next run still has to establish that.
	Begun bool  `json:"begun,omitempty"`
	State State `json:"state"`
	// Waiting are the workflow IDs of operations that wait for this one to give way.
	Waiting []string `json:"waiting,omitempty"`
	// Released is true when the finalizer of the deleted serving has been removed.
	Released bool `json:"released,omitempty"`
}

// MaxInput is the maximum size in bytes of an operation's packed versions, which are part of one event of the
// workflow's history.
const MaxInput = 1 << 20

// WithServed returns the operation with another last good version than the one it was started with; wrong is the reason
// if that is impossible.
func (in Input) WithServed(served kuscia.Served) (on Input, wrong string) {
	if in.Kind == KindRecreate {
		in.Target, in.TargetDigest = served.Version, served.Digest
	} else {
		in.Kind, in.Previous, in.PreviousDigest = KindUpdate, served.Version, served.Digest
	}
	version, err := Unpack(served.Version)
	if err != nil {
		return in, err.Error()
	}
	if size := len(in.Target) + len(in.Previous); size > MaxInput {
		return in, fmt.Sprintf("its versions have %d bytes together, and at most %d can be handed to its parties", size,
			MaxInput)
	}
	parties := make([]kuscia.Party, len(in.Parties))
	for i, p := range in.Parties {
		parties[i] = kuscia.Party{DomainID: p.Domain, Role: p.Role}
	}
	return in, version.CheckParties(parties)
}

// PartyTarget is a party of an operation.
type PartyTarget struct {
	Domain     string `json:"domain"`
	Role       string `json:"role,omitempty"`
	Deployment string `json:"deployment"`
	Queue      string `json:"queue"`
}

// sameParty reports whether it is the same party, ignoring role and queue.
func (p PartyTarget) sameParty(other PartyTarget) bool {
	return p.Domain == other.Domain && p.Deployment == other.Deployment
}

// Name returns the name of the party in texts.
func (p PartyTarget) Name() string { return PartyName(kuscia.Party{DomainID: p.Domain, Role: p.Role}) }

// Source is where a party's worker reads a version: the first event of a workflow run.
type Source struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// Previous selects Input.Previous instead of Input.Target.
	Previous bool `json:"previous,omitempty"`
}

// PartyRequest is one step of an operation in one party.
type PartyRequest struct {
	ID  string `json:"id"`
	UID string `json:"uid"`
	// Generation is that of the operation, Started the time when it began, in Unix milliseconds: the fencing token.
	Generation int64 `json:"generation"`
	Started    int64 `json:"started"`
	// Domain and Deployment identify the party of the version: another version may list the parties in another order.
	Domain     string `json:"domain"`
	Deployment string `json:"deployment"`
	// Version is the digest of the version that Source refers to.
	Version string `json:"version,omitempty"`
	Source  Source `json:"source"`
	// Claim is the operation's claim on the Deployment while it changes it.
	Claim           string `json:"claim"`
	DeadlineSeconds int64  `json:"deadlineSeconds"`
	// UnreachableBudgetSeconds is how long the cluster may be unreachable for the worker.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// KnownFailure is a failure that was already reported: while it stays the same, Temporal retries every
	// PersistentRetryInterval without a report.
	KnownFailure string `json:"told,omitempty"`
	// SpentSeconds is the part of the deadline that is already used.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
}

// PersistentRetryInterval is the retry interval of a step that must succeed and has failed several times.
const PersistentRetryInterval = maxRetryPause

// NoteRequest is an update of the serving's status by an operation.
type NoteRequest struct {
	ID        string           `json:"id"`
	UID       string           `json:"uid"`
	Operation kuscia.Operation `json:"operation"`
	// Failures are the failure messages of the parties that failed, by their index in Parties.
	Failures map[int]string `json:"failures,omitempty"`
	// Complete is when a party was last seen complete, by its index in Parties.
	Complete map[int]time.Time `json:"complete,omitempty"`
	// Observed are the known states of parties after a version was applied to them.
	Observed []ObserveRequest `json:"observed,omitempty"`
	// Served is true when all parties run Operation.Version, which Source refers to.
	Served bool   `json:"served,omitempty"`
	Source Source `json:"source"`
	// Parties are those of the operation. Previous is set when it begins: the digest of the version that it considers
	// the last good one.
	Parties  []PartyTarget `json:"parties,omitempty"`
	Previous string        `json:"previous,omitempty"`
	// Started is when the operation began, which is the time of its record. Ending is set when it ends, to complete its
	// record.
	Started time.Time `json:"started"`
	Ending  *Ending   `json:"ending,omitempty"`
}

// BeginResult is the reply to an operation that begins.
type BeginResult struct {
	// NotFound: the serving does not exist any more, or another one has its name. Outdated: its spec has changed again.
	// In both cases there is nothing to do.
	NotFound bool `json:"gone,omitempty"`
	Outdated bool `json:"newer,omitempty"`
	// Served is the last good version if it is not that of Input any more. Nothing was written; the operation begins
	// again with it.
	Served *kuscia.Served `json:"served,omitempty"`
	// Predecessor is the operation that may still be running; nil if there is none.
	Predecessor *kuscia.Operation `json:"predecessor,omitempty"`
	// Unrecorded is why the operation has no record, "" if it has one. The operation continues without it.
	Unrecorded string `json:"unrecorded,omitempty"`
}

// ObserveRequest is a batch of observations of one serving.
type ObserveRequest struct {
	ID           string        `json:"id"`
	Observations []Observation `json:"observations"`
	// At is when they were collected.
	At time.Time `json:"at"`
}

// ObserveManyRequest holds batches of observations, one for each serving.
type ObserveManyRequest struct {
	Servings []ObserveRequest `json:"servings"`
}

// ObserveManyResult lists the servings whose status could not be written yet.
type ObserveManyResult struct {
	Unwritten []Unwritten `json:"left,omitempty"`
}

// Unwritten is a serving whose status could not be written, and why. Final means that a retry is useless.
type Unwritten struct {
	ID      string `json:"id"`
	Message string `json:"message"`
	Final   bool   `json:"final,omitempty"`
}

// SupersedeSignal asks an operation to give way.
type SupersedeSignal struct {
	By         string `json:"by"`
	Generation int64  `json:"generation"`
}

// PresenceSignal reports whether the worker of a queue is reachable.
type PresenceSignal struct {
	Queue string `json:"queue"`
	// Unreachable is why it is considered unreachable; "" when it is reachable.
	Unreachable string `json:"away,omitempty"`
	// Since is when it last reported.
	Since time.Time `json:"since"`
}
