package serving

import (
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/instant"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Observation is what a party's worker has seen of its Deployment.
type Observation struct {
	// ID and UID are the serving's.
	ID         string `json:"id"`
	UID        string `json:"uid"`
	Domain     string `json:"domain"`
	Deployment string `json:"deployment"`
	Seen       Seen   `json:"seen"`
}

// Look says which Deployment was looked at, how many pods it was asked for, and how old the look is. The object's version says what is
// older, not a time: workers' clocks differ.
type Look struct {
	DeploymentUID   string    `json:"deploymentUid"`
	CreatedAt       time.Time `json:"createdAt"`
	ResourceVersion string    `json:"resourceVersion"`
	Replicas        int32     `json:"replicas"`
}

// Seen is a party's Deployment as its worker saw it.
type Seen struct {
	Look
	UpdatedReplicas     int32 `json:"updatedReplicas"`
	AvailableReplicas   int32 `json:"availableReplicas"`
	UnavailableReplicas int32 `json:"unavailableReplicas"`
	// Conditions are the Deployment's.
	Conditions []SeenCondition `json:"conditions,omitempty"`
	// Version is the digest of what the Deployment is told to run.
	Version string `json:"version,omitempty"`
	// PodReason and PodMessage are the word of a pod that does not serve.
	PodReason  string `json:"podReason,omitempty"`
	PodMessage string `json:"podMessage,omitempty"`
	// Missing are the party's objects that somebody else has deleted, Drift what somebody else has changed of them.
	Missing []string       `json:"missing,omitempty"`
	Drift   []kuscia.Drift `json:"drift,omitempty"`
	// Token is the fencing token of the step that last wrote the Deployment. What looks the same as before that step is told once more.
	Token string `json:"token,omitempty"`
}

// SeenCondition is a condition of a Deployment.
type SeenCondition struct {
	Type      string    `json:"type"`
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	UpdatedAt time.Time `json:"updatedAt"`
	ChangedAt time.Time `json:"changedAt"`
}

// See is what is told of a Deployment; missing are the objects that belong to it and are not there, drift what somebody else has changed.
func See(d *appsv1.Deployment, missing []string, drift []kuscia.Drift) Seen {
	st := d.Status
	seen := Seen{
		Look: Look{DeploymentUID: string(d.UID), CreatedAt: d.CreationTimestamp.UTC(), ResourceVersion: d.ResourceVersion,
			Replicas: askedReplicas(d)},
		UpdatedReplicas: st.UpdatedReplicas, AvailableReplicas: st.AvailableReplicas,
		// Of all pods: while an update surges, the new ones are not available beside old ones that are.
		UnavailableReplicas: st.UnavailableReplicas,
		Version:             d.Annotations[AnnotationVersion], Missing: missing, Drift: drift, Token: d.Annotations[AnnotationToken],
	}
	for _, c := range st.Conditions {
		seen.Conditions = append(seen.Conditions, SeenCondition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			UpdatedAt: c.LastUpdateTime.UTC(), ChangedAt: c.LastTransitionTime.UTC()})
	}
	return seen
}

// Gone is what is told of a Deployment that was seen before and is not there any more.
func (s Seen) Gone(deployment string) Seen {
	return Seen{Look: s.Look, UnavailableReplicas: s.Replicas, Missing: []string{"Deployment/" + deployment}}
}

func (s Seen) entry(at time.Time) kuscia.PartyDeploymentStatus {
	created, observed := metav1.NewTime(s.CreatedAt), instant.MicroOf(at)
	e := kuscia.PartyDeploymentStatus{
		DeploymentUID: s.DeploymentUID, DeploymentVersion: s.ResourceVersion, Replicas: s.Replicas, UpdatedReplicas: s.UpdatedReplicas,
		AvailableReplicas: s.AvailableReplicas, UnavailableReplicas: s.UnavailableReplicas, CreationTimestamp: &created, Version: s.Version,
		ObservedAt: &observed, PodReason: s.PodReason, PodMessage: s.PodMessage, Missing: s.Missing, Drift: s.Drift,
	}
	for _, c := range s.Conditions {
		e.Conditions = append(e.Conditions, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastUpdateTime: metav1.NewTime(c.UpdatedAt), LastTransitionTime: metav1.NewTime(c.ChangedAt)})
	}
	return e
}

// restoredAfter is after how long an older observation counts: none is under way so long, but a cluster restored from a backup counts
// anew.
const restoredAfter = 5 * time.Minute

// overtaken says that a look that reached the centre at that time is older than what is known.
func (s Seen) overtaken(known kuscia.PartyDeploymentStatus, at time.Time) bool {
	if known.ObservedAt == nil || known.DeploymentUID == "" || at.Sub(known.ObservedAt.Time) > restoredAfter {
		return false
	}
	last := lastSeen(known)
	// Of the same version what was gathered later counts: a Deployment that is gone is told with the version that it had last.
	return s.Before(last) || !last.Before(s.Look) && at.Before(known.ObservedAt.Time)
}

// lastSeen is the look that a party's status is of.
func lastSeen(known kuscia.PartyDeploymentStatus) Look {
	l := Look{DeploymentUID: known.DeploymentUID, ResourceVersion: known.DeploymentVersion, Replicas: known.Replicas}
	if known.CreationTimestamp != nil {
		l.CreatedAt = known.CreationTimestamp.UTC()
	}
	return l
}

// Before says that a look is older: at a Deployment that was replaced since, or at a lower resourceVersion of the same one.
func (l Look) Before(other Look) bool {
	if l.DeploymentUID != other.DeploymentUID {
		return l.CreatedAt.Before(other.CreatedAt)
	}
	is, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	was, wrong := strconv.ParseUint(other.ResourceVersion, 10, 64)
	return err == nil && wrong == nil && is < was
}

// A worker doesn't see what was deleted while it wasn't running: when it starts, it is told what it should find.

// ExpectedRequest asks for one page of the Deployments that a worker of a queue should find in its cluster. "" is the first page.
type ExpectedRequest struct {
	Queue string `json:"queue"`
	// Namespaces are those that the worker serves; none: all.
	Namespaces []string `json:"namespaces,omitempty"`
	Cursor     string   `json:"cursor,omitempty"`
}

// ExpectedPage is one page of them. Next is the cursor of the page after it, "" on the last one.
type ExpectedPage struct {
	Expected []Expected `json:"expected,omitempty"`
	Next     string     `json:"next,omitempty"`
}

// Expected is a Deployment that was there when its party's worker told of it last.
type Expected struct {
	ID         string `json:"id"`
	UID        string `json:"uid"`
	Domain     string `json:"domain"`
	Deployment string `json:"deployment"`
	Look
}

// CheckRequest has a party's worker look for Deployments.
type CheckRequest struct {
	Expected []Expected `json:"expected"`
}

// CheckResult tells of those that are not there.
type CheckResult struct {
	Gone []Observation `json:"gone,omitempty"`
}

// ExpectedOf are a serving's Deployments that the worker of a queue should find, without those that are known to be missing.
func ExpectedOf(kd *kuscia.KusciaDeployment, queue string) []Expected {
	if kd.DeletionTimestamp != nil {
		return nil
	}
	var all []Expected
	for _, p := range Members(kd) {
		entry := statusOf(kd, p)
		if p.Queue != queue || entry.ObservedAt == nil || entry.DeploymentUID == "" || len(entry.Missing) > 0 {
			continue
		}
		all = append(all, Expected{ID: kd.Name, UID: string(kd.UID), Domain: p.Domain, Deployment: p.Deployment, Look: lastSeen(entry)})
	}
	return all
}

// Gone tells that the Deployment is not there any more.
func (e Expected) Gone() Observation {
	return Observation{ID: e.ID, UID: e.UID, Domain: e.Domain, Deployment: e.Deployment, Seen: Seen{Look: e.Look}.Gone(e.Deployment)}
}
