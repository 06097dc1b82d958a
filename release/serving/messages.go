package serving

import (
	"fmt"
	"slices"
	"strings"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/workloadops"
)

// The activities of a party, on its own queue.
const (
	// ActivityPrepare checks without a write that a party can run a version. PartyRequest → TogetherResult.
	ActivityPrepare = "party.Prepare"
	// ActivityApply brings a party to a version and waits until it runs. PartyRequest → TogetherResult.
	ActivityApply = "party.Apply"
	// ActivityCreate does both for all parties of an operation, the second once all have said that they can: PartyRequest with the others → TogetherResult.
	ActivityCreate = "party.Create"
	// ActivityRemove removes everything of a serving from a party. PartyRequest → TogetherResult.
	ActivityRemove = "party.Remove"
	// ActivityCheck says which Deployments of a list are not there. CheckRequest → CheckResult.
	ActivityCheck = "party.Check"
)

const (
	// ActivityBegin writes that an operation has begun, and its record. NoteRequest → BeginResult.
	ActivityBegin = "home.BeginServing"
	// ActivityNote writes how an operation stands, or that it is over, and completes its record then. NoteRequest → nothing.
	ActivityNote = "home.NoteServing"
	// ActivityRelease removes the finalizer of a deleted KusciaDeployment, and completes the record of its deletion. NoteRequest → nothing.
	ActivityRelease = "home.ReleaseServing"
	// ActivityObserve takes what parties have seen over into the status. ObserveRequest → nothing.
	ActivityObserve = "home.ObserveServing"
	// ActivityObserveMany does so for many servings. ObserveManyRequest → ObserveManyResult.
	ActivityObserveMany = "home.ObserveServings"
	// ActivityExpected lists what a queue's worker should find in its cluster. ExpectedRequest → ExpectedPage.
	ActivityExpected = "home.ExpectedServings"
)

// The signals of a Serving, and of a ServingStatus.
const (
	// SignalSupersede tells an operation that a newer one waits for it to give way. SupersedeSignal.
	SignalSupersede = "supersede"
	// SignalGaveWay answers it. No payload.
	SignalGaveWay = "gave-way"
	// SignalPresence tells whether a party's worker is there. PresenceSignal.
	SignalPresence = "presence"
	// SignalObserved tells a ServingStatus what a party's worker has seen. Observation.
	SignalObserved = "observed"
	// SignalObservedMany tells a ServingStatuses what a party's worker has seen. []Observation.
	SignalObservedMany = "observed-many"
)

// TypeStatus is the workflow type that carries observations of one serving to its status, as workers of earlier versions tell them.
const TypeStatus = "ServingStatus"

// TypeStatuses is the workflow type that carries observations of many servings to their statuses. []Observation → nothing.
const TypeStatuses = "ServingStatuses"

// TypeCheck is the workflow type by which a worker that has just started learns what should be there. ExpectedRequest → nothing.
const TypeCheck = "ServingCheck"

// CheckWorkflowID is the workflow that checks what a worker of a queue should find in the namespaces that it serves; none: in all.
// Workers of one queue that serve different namespaces each have their own.
func CheckWorkflowID(queue string, namespaces []string) string {
	id := "serving-check/" + queue
	if len(namespaces) == 0 {
		return id
	}
	return id + "/" + shortDigest([]byte(strings.Join(slices.Sorted(slices.Values(namespaces)), ",")))
}

// WorkflowPrefix begins the workflow IDs of all operations on a serving. Each may take over the claims of its predecessors, which gave
// way.
func WorkflowPrefix(id string) string { return "serving/" + id + "/" }

// StatusWorkflowID is the workflow that carries observations of a serving to its status.
func StatusWorkflowID(id string) string { return "serving-status/" + id }

// StatusesWorkflowID is the workflow that carries what the workers of a queue have seen to the statuses.
func StatusesWorkflowID(queue string) string { return "serving-statuses/" + queue }

// The kinds of operations on a serving.
const (
	KindCreate   = "create"
	KindUpdate   = "update"
	KindRecreate = "recreate"
	KindDelete   = "delete"
	// KindRefuse is no workflow: the spec cannot be run.
	KindRefuse = "refuse"
)

// Input is what a Serving workflow is started with. Parties' workers read the versions from the first event of a run,
// so that they travel once.
type Input struct {
	ID         string `json:"id"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Kind       string `json:"kind"`
	// Target is the packed Version that is asked, Previous what the parties go back to when that fails; absent for a creation.
	Target         []byte        `json:"target,omitempty"`
	TargetDigest   string        `json:"targetDigest,omitempty"`
	Previous       []byte        `json:"previous,omitempty"`
	PreviousDigest string        `json:"previousDigest,omitempty"`
	Parties        []PartyTarget `json:"parties"`
	Policy         Policy        `json:"policy"`
	// Cause says what others have deleted or changed that a recreation puts back.
	Cause string `json:"cause,omitempty"`
	// UnreachableBudgetSeconds is how long a party's cluster may be unreachable for its worker before a new attempt is made.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// Continued is how far the operation is, in a run that was continued as new; nil at a start.
	Continued *Continued `json:"continued,omitempty"`
	// Engine is the engine that runs the operation, for its claim; none in operations of an earlier build.
	Engine workloadops.Engine `json:"engine,omitzero"`
}

// Continued is what an operation takes along into its next run. No party does anything then.
type Continued struct {
	// Began is when its first run began.
	Began time.Time `json:"began"`
	// Begun says that the operation is the serving's, and its predecessor has given way: without it that is still to be found out.
	Begun bool  `json:"begun,omitempty"`
	State State `json:"state"`
	// Waiting are the operations that wait for this one to give way.
	Waiting []string `json:"waiting,omitempty"`
	// Released says that a deleted serving was let go.
	Released bool `json:"released,omitempty"`
}

// MaxInput is how many bytes an operation's packed versions may have: they travel in one event of a workflow's history.
const MaxInput = 1 << 20

// On is the operation on another last good version than it was started with; wrong says why it cannot be.
func (in Input) On(served kuscia.Served) (on Input, wrong string) {
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
		return in, fmt.Sprintf("its versions have %d bytes together, and at most %d can be handed to its parties", size, MaxInput)
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

// same says whether it is the same party, whatever its role and queue.
func (p PartyTarget) same(other PartyTarget) bool {
	return p.Domain == other.Domain && p.Deployment == other.Deployment
}

// Name is how texts call the party.
func (p PartyTarget) Name() string { return PartyName(kuscia.Party{DomainID: p.Domain, Role: p.Role}) }

// Source says where a party's worker reads a version: the first event of a workflow's run.
type Source struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
	// Previous takes Input.Previous instead of Input.Target.
	Previous bool `json:"previous,omitempty"`
}

// PartyRequest is one step of an operation in one party.
type PartyRequest struct {
	ID  string `json:"id"`
	UID string `json:"uid"`
	// Generation is the operation's, Started when it began, in Unix milliseconds: the fencing token.
	Generation int64 `json:"generation"`
	Started    int64 `json:"started"`
	// Domain and Deployment say which party of the version it is: another version may have them in another order.
	Domain     string `json:"domain"`
	Deployment string `json:"deployment"`
	// Version is the digest of the version that Source leads to.
	Version string `json:"version,omitempty"`
	Source  Source `json:"source"`
	// Claim is the operation's mark on the Deployment while it works on it.
	Claim           string `json:"claim"`
	DeadlineSeconds int64  `json:"deadlineSeconds"`
	// UnreachableBudgetSeconds is how long the cluster may be out of the worker's reach.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
	// KnownFailure is the failure that the operation knows of already: while it is the same, the server retries every OwedRetryInterval and
	// doesn't report it.
	KnownFailure string `json:"told,omitempty"`
	// SpentSeconds is how much of the deadline is used already.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
	// Others are requests for the same step of other parties of this queue, which are taken beside this one; none of them has others itself.
	Others []PartyRequest `json:"others,omitempty"`
}

// OwedRetryInterval is after how long what is owed, and has come to nothing several times, is tried again.
const OwedRetryInterval = pauseLongest

// NoteRequest is what an operation has to say to the status.
type NoteRequest struct {
	ID        string           `json:"id"`
	UID       string           `json:"uid"`
	Operation kuscia.Operation `json:"operation"`
	// Failures are the sentences of the parties that failed, by their place in Parties.
	Failures map[int]string `json:"failures,omitempty"`
	// Complete is when everything of a party was seen in its place, by its place in Parties.
	Complete map[int]time.Time `json:"complete,omitempty"`
	// Observed are what parties were seen to run when they had been brought to a version, where that is known.
	Observed []ObserveRequest `json:"observed,omitempty"`
	// Served says that all parties run Operation.Version, which Source leads to.
	Served bool   `json:"served,omitempty"`
	Source Source `json:"source"`
	// Parties are the operation's. Previous, to begin with, is the digest of the version that it takes to be the last good one.
	Parties  []PartyTarget `json:"parties,omitempty"`
	Previous string        `json:"previous,omitempty"`
	// Started is when the operation began: its record is of that time. Ending, at the end, is what its record is completed with.
	Started time.Time `json:"started"`
	Ending  *Ending   `json:"ending,omitempty"`
}

// BeginResult is what an operation finds.
type BeginResult struct {
	// Gone: the serving doesn't exist any more, or is another one of its name. Newer: its spec has changed again. There is nothing to do.
	Gone  bool `json:"gone,omitempty"`
	Newer bool `json:"newer,omitempty"`
	// Served is the last good version when it isn't the one of Input any more. Nothing was written; the operation begins again with it.
	Served *kuscia.Served `json:"served,omitempty"`
	// Predecessor is the operation that may still be under way; nil when there is none.
	Predecessor *kuscia.Operation `json:"predecessor,omitempty"`
	// Unrecorded says why the operation has no record, "" when it has one: it goes on without.
	Unrecorded string `json:"unrecorded,omitempty"`
}

// ObserveRequest is a burst of observations of one serving.
type ObserveRequest struct {
	ID           string        `json:"id"`
	Observations []Observation `json:"observations"`
	// At is when they were gathered.
	At time.Time `json:"at"`
}

// ObserveManyRequest are bursts of observations, one of each serving.
type ObserveManyRequest struct {
	Servings []ObserveRequest `json:"servings"`
}

// ObserveManyResult says of which servings the status could not be written yet.
type ObserveManyResult struct {
	Left []Unwritten `json:"left,omitempty"`
}

// Unwritten is a serving whose status could not be written, and why. Final says that it is of no use to try again.
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

// PresenceSignal tells whether the worker of a queue is there.
type PresenceSignal struct {
	Queue string `json:"queue"`
	// Unreachable says why it is thought not to be there; "" when it is.
	Unreachable string `json:"away,omitempty"`
	// Since is when it was last heard of.
	Since time.Time `json:"since"`
}
