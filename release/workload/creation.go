package workload

import (
	"slices"
	"strings"
	"time"
)

// CreationFailure is what a cluster reports about pods of a workload that it does not create. The zero value means that
// it reports nothing.
type CreationFailure struct {
	// Message is the API server's answer to the controller that creates the pods, in the API server's own words.
	Message string
	// Since is when the cluster began to report it. Last is when it last did; zero: it still does.
	Since, Last time.Time
	// Unreadable means that pods are missing, and that the worker may not read the events that say why.
	Unreadable bool
	// Of is the workload whose pods they are; "": the workload itself.
	Of string
}

// EventsUnreadable says why the reason of a pod is not known.
const EventsUnreadable = "events may say why, but this party's worker may not read them: grant it list on events " +
	"(deploy/rbac/party.yaml)"

// Reported reports whether there is anything to show.
func (f CreationFailure) Reported() bool { return f.Message != "" || f.Unreadable }

// notCreated separates whose pods are not created from the API server's words.
const notCreated = " cannot be created: "

// reason returns what to show of the failure beside the reason of the worst pod: nothing if all that is known is that
// pods are missing and a pod has a reason.
func (f CreationFailure) reason(podReason string) string {
	if f.Message == "" && podReason != "" {
		return ""
	}
	return f.String()
}

// String returns the failure as a sentence; "" if nothing is reported.
func (f CreationFailure) String() string {
	pods := "its pods"
	if f.Of != "" {
		pods = "the pods of " + f.Of
	}
	switch {
	case f.Message != "":
		return pods + notCreated + f.Message
	case f.Unreadable:
		return "some of " + pods + " are missing; " + EventsUnreadable
	}
	return ""
}

// Cause is the kind of reason for which pods are not created. It decides when a release ends.
type Cause string

// The causes.
const (
	// CauseDenied: a rule forbids pods with this spec. Neither changes by itself: the release ends soon.
	CauseDenied Cause = "denied"
	// CauseQuota: the namespace has no room for the pods, or something that they refer to does not exist. Other pods
	// may end and make room, and the missing object may follow: the release ends after its patience.
	CauseQuota Cause = "quota"
	// CauseUndecided: the API server has not decided about the pods, for example because a webhook does not answer. The
	// release ends at its deadline.
	CauseUndecided Cause = "undecided"
	// CauseStart: the pods exist but do not start.
	CauseStart Cause = "start"
)

// MetricBlocked counts the waits of releases for pods that are not created or do not start. Labels kind and LabelCause.
// Activities emit it, so that workers of a single party have it too.
const (
	MetricBlocked = "slipway_release_blocked_total"
	LabelCause    = "cause"
)

// Causes are all causes.
var Causes = []Cause{CauseDenied, CauseQuota, CauseUndecided, CauseStart}

// CreationCause is a row of the table of causes.
type CreationCause struct {
	// What is what keeps the pods from being created, for users.
	What  string
	Cause Cause
	// Words are phrases of the API server's messages, of which one is enough.
	Words []string
}

// CreationCauses is the table of what keeps pods from being created. The first row with a phrase of the message
// applies; a message that no row knows is undecided. The same table is in docs/rollouts.md.
var CreationCauses = []CreationCause{
	{"Pod Security", CauseDenied, []string{"violates PodSecurity"}},
	{"an admission webhook or admission policy that denies them", CauseDenied,
		[]string{"denied the request", "denied request", "denied one or more images"}},
	{"a LimitRange", CauseDenied, []string{" usage per ", " ratio per "}},
	{"a ResourceQuota that requires requests or limits", CauseDenied, []string{"must specify "}},
	{"a rule of the cluster's distribution or of the namespace on what pods may use", CauseDenied,
		[]string{"unable to validate against any security context constraint", "its namespace node label selector",
			"pod tolerations"}},
	{"an invalid pod, for example after a webhook or a LimitRange has set defaults", CauseDenied,
		[]string{"is invalid:"}},
	{"an API server that has not counted a new ResourceQuota yet", CauseUndecided,
		[]string{"status unknown for quota"}},
	{"a ResourceQuota that is used up", CauseQuota, []string{"exceeded quota", "insufficient quota"}},
	{"a ServiceAccount that doesn't exist", CauseQuota, []string{"error looking up service account"}},
	{"a PriorityClass or RuntimeClass that doesn't exist", CauseQuota,
		[]string{"no PriorityClass with name", "RuntimeClass"}},
	{"an admission webhook that doesn't answer and has `failurePolicy: Fail`", CauseUndecided,
		[]string{"failed calling webhook"}},
	{"any other refusal", CauseQuota, []string{"is forbidden"}},
}

// Cause returns the cause of the failure.
func (f CreationFailure) Cause() Cause {
	for _, row := range CreationCauses {
		if slices.ContainsFunc(row.Words, func(words string) bool { return strings.Contains(f.Message, words) }) {
			return row.Cause
		}
	}
	return CauseUndecided
}

// CauseOf returns the cause of a reason for which a release waits for pods, as CreationFailure.String or
// WorstPodReason describe it.
func CauseOf(reason string) Cause {
	if _, message, is := strings.Cut(reason, notCreated); is {
		return CreationFailure{Message: message}.Cause()
	}
	return CauseStart
}

// creationGrace is how long a failure left by an earlier release may remain: controllers retry when a new release
// writes, and report it no longer once they succeed.
const creationGrace = 10 * time.Second

// PatienceLeft returns how long a job whose pods are not created waits before it fails; ends is false if it waits until
// its deadline. Nothing counts from before the last change of the number of pods.
//
// A quota has the patience of a stuck pod, and so has a denial that was last reported before the job began: the rule
// may have been changed since.
func (f CreationFailure) PatienceLeft(seen Snapshot, deadline time.Duration) (left time.Duration, ends bool) {
	patience := creationGrace
	cause := f.Cause()
	outdated := !f.Last.IsZero() && f.Last.Before(seen.Now.Add(-seen.Elapsed))
	switch {
	case f.Message == "" || cause == CauseUndecided:
		return 0, false
	case cause == CauseQuota || outdated:
		patience = max(patience, min(deadline/2, PatienceLimit))
	}
	return patience - f.lasted(seen), true
}

// lasted returns how long the failure has lasted, since the last change of the number of pods.
func (f CreationFailure) lasted(seen Snapshot) time.Duration {
	lasted := min(seen.Elapsed, seen.StalledFor)
	if !f.Since.IsZero() {
		lasted = min(lasted, seen.Now.Sub(f.Since))
	}
	return lasted
}

// The reasons of the events in which controllers report that they cannot create a pod, or the object that creates it.
const (
	ReasonFailedCreate  = "FailedCreate"
	ReasonFailedDelete  = "FailedDelete" // of pods beyond the size, which exist
	ReasonNoReplicaSet  = "ReplicaSetCreateError"
	combinedEventPrefix = "(combined from similar events): "
)

// CreationReasons are the reasons of these events.
var CreationReasons = []string{ReasonFailedCreate, ReasonNoReplicaSet}

// CreationMessage returns the API server's own words in the message of such an event or condition: controllers put a
// text of their own before them, and a CloneSet's adds the whole pod.
func CreationMessage(text string) string {
	text = strings.TrimPrefix(text, combinedEventPrefix)
	for _, controllers := range []string{"Error creating: ", " failed error: ", "failed to create pod: ",
		"Failed to create new replica set "} {
		_, after, found := strings.Cut(text, controllers)
		if found && controllers == "Failed to create new replica set " { // its name follows
			_, after, found = strings.Cut(after, ": ")
		}
		if found {
			text = after
			break
		}
	}
	text, _, _ = strings.Cut(text, ", pod: {")
	return text
}

// LacksPods reports whether pods are missing that the workload's controller should have created by now. A controller
// that goes by ordinals creates none while another pod is not ready.
func (s Snapshot) LacksPods(ordered bool) bool {
	if !s.PodsSeen || s.Lagging() || int32(len(s.Pods)) >= s.Replicas {
		return false
	}
	return !ordered || s.CountPods(func(p Pod) bool { return p.Alive() && !p.Ready }) == 0
}
