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

// Observation is what a party's worker reports about its Deployment.
type Observation struct {
	// ID and UID are those of the serving.
	ID         string             `json:"id"`
	UID        string             `json:"uid"`
	Domain     string             `json:"domain"`
	Deployment string             `json:"deployment"`
	Snapshot   DeploymentSnapshot `json:"seen"`
}

// ObservedDeployment identifies the observed Deployment, its age and its requested size. Observations are ordered by
// the object's resourceVersion, not by time, because the clocks of workers differ.
type ObservedDeployment struct {
	DeploymentUID   string    `json:"deploymentUid"`
	CreatedAt       time.Time `json:"createdAt"`
	ResourceVersion string    `json:"resourceVersion"`
	Replicas        int32     `json:"replicas"`
}

// DeploymentSnapshot is the state of a party's Deployment as observed by its worker.
type DeploymentSnapshot struct {
	ObservedDeployment
	UpdatedReplicas     int32 `json:"updatedReplicas"`
	AvailableReplicas   int32 `json:"availableReplicas"`
	UnavailableReplicas int32 `json:"unavailableReplicas"`
	// Conditions are those of the Deployment.
	Conditions []ConditionSnapshot `json:"conditions,omitempty"`
	// Version is the digest of the version that the Deployment is configured to run.
	Version string `json:"version,omitempty"`
	// PodReason and PodMessage explain why a pod does not serve.
	PodReason  string `json:"podReason,omitempty"`
	PodMessage string `json:"podMessage,omitempty"`
	// Missing are the party's objects that another client has deleted, Drift are changes by other clients.
	Missing []string       `json:"missing,omitempty"`
	Drift   []kuscia.Drift `json:"drift,omitempty"`
	// Token is the fencing token of the step that last wrote the Deployment. It makes the worker report the state once
	// more after each step, even if it is unchanged.
	Token string `json:"token,omitempty"`
}

// ConditionSnapshot is a condition of a Deployment.
type ConditionSnapshot struct {
	Type      string    `json:"type"`
	Status    string    `json:"status"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	UpdatedAt time.Time `json:"updatedAt"`
	ChangedAt time.Time `json:"changedAt"`
}

// NewDeploymentSnapshot returns the snapshot of a Deployment. missing are the objects that belong to it and do not
// exist, drift are changes by other clients.
func NewDeploymentSnapshot(d *appsv1.Deployment, missing []string, drift []kuscia.Drift) DeploymentSnapshot {
	st := d.Status
	seen := DeploymentSnapshot{
		ObservedDeployment: ObservedDeployment{DeploymentUID: string(d.UID), CreatedAt: d.CreationTimestamp.UTC(),
			ResourceVersion: d.ResourceVersion,
			Replicas:        desiredReplicas(d)},
		UpdatedReplicas: st.UpdatedReplicas, AvailableReplicas: st.AvailableReplicas,
		// All pods count: while an update surges, new pods may be unavailable although as many old ones are available
		// as requested.
		UnavailableReplicas: st.UnavailableReplicas,
		Version:             d.Annotations[AnnotationVersion], Missing: missing, Drift: drift,
		Token: d.Annotations[AnnotationToken],
	}
	for _, c := range st.Conditions {
		seen.Conditions = append(seen.Conditions, ConditionSnapshot{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			UpdatedAt: c.LastUpdateTime.UTC(), ChangedAt: c.LastTransitionTime.UTC()})
	}
	return seen
}

// Deleted returns the snapshot of a Deployment that was observed before and does not exist any more.
func (s DeploymentSnapshot) Deleted(deployment string) DeploymentSnapshot {
	return DeploymentSnapshot{ObservedDeployment: s.ObservedDeployment, UnavailableReplicas: s.Replicas,
		Missing: []string{"Deployment/" + deployment}}
}

func (s DeploymentSnapshot) entry(at time.Time) kuscia.PartyDeploymentStatus {
	created, observed := metav1.NewTime(s.CreatedAt), instant.MicroOf(at)
	e := kuscia.PartyDeploymentStatus{
		DeploymentUID: s.DeploymentUID, DeploymentVersion: s.ResourceVersion, Replicas: s.Replicas,
		UpdatedReplicas:   s.UpdatedReplicas,
		AvailableReplicas: s.AvailableReplicas, UnavailableReplicas: s.UnavailableReplicas, CreationTimestamp: &created,
		Version:    s.Version,
		ObservedAt: &observed, PodReason: s.PodReason, PodMessage: s.PodMessage, Missing: s.Missing, Drift: s.Drift,
	}
	for _, c := range s.Conditions {
		e.Conditions = append(e.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentConditionType(c.Type),
			Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastUpdateTime: metav1.NewTime(c.UpdatedAt), LastTransitionTime: metav1.NewTime(c.ChangedAt)})
	}
	return e
}

// observationMaxDelay is the maximum delay of an observation. After that, an older resourceVersion is accepted, since
// the cluster may have been restored from a backup.
const observationMaxDelay = 5 * time.Minute

// isStale reports whether a snapshot that reached the centre at that time is older than the known state.
func (s DeploymentSnapshot) isStale(known kuscia.PartyDeploymentStatus, at time.Time) bool {
	if known.ObservedAt == nil || known.DeploymentUID == "" || at.Sub(known.ObservedAt.Time) > observationMaxDelay {
		return false
	}
	last := lastObserved(known)
	// Of two observations of the same resourceVersion, the later one counts: a deleted Deployment is reported with its
	// last version.
	return s.Before(last) || !last.Before(s.ObservedDeployment) && at.Before(known.ObservedAt.Time)
}

// lastObserved returns the observed Deployment that a party's status describes.
func lastObserved(known kuscia.PartyDeploymentStatus) ObservedDeployment {
	l := ObservedDeployment{DeploymentUID: known.DeploymentUID, ResourceVersion: known.DeploymentVersion,
		Replicas: known.Replicas}
	if known.CreationTimestamp != nil {
		l.CreatedAt = known.CreationTimestamp.UTC()
	}
	return l
}

// Before reports whether the observation is older: of a Deployment that was replaced since, or of a lower
// resourceVersion of the same one.
func (l ObservedDeployment) Before(other ObservedDeployment) bool {
	if l.DeploymentUID != other.DeploymentUID {
		return l.CreatedAt.Before(other.CreatedAt)
	}
	is, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	was, wrong := strconv.ParseUint(other.ResourceVersion, 10, 64)
	return err == nil && wrong == nil && is < was
}

// A worker does not observe deletions while it is not running. When it starts, it therefore receives the list of
// expected Deployments.

// ExpectedRequest requests one page of the Deployments that a worker of a queue should find in its cluster. The cursor
// "" is the first page.
type ExpectedRequest struct {
	Queue string `json:"queue"`
	// Namespaces are the namespaces that the worker serves; empty means all.
	Namespaces []string `json:"namespaces,omitempty"`
	Cursor     string   `json:"cursor,omitempty"`
}

// ExpectedPage is one page of expected Deployments. Next is the cursor of the following page, "" on the last one.
type ExpectedPage struct {
	Expected []Expected `json:"expected,omitempty"`
	Next     string     `json:"next,omitempty"`
}

// Expected is a Deployment that existed when its party's worker last reported it.
type Expected struct {
	ID         string `json:"id"`
	UID        string `json:"uid"`
	Domain     string `json:"domain"`
	Deployment string `json:"deployment"`
	ObservedDeployment
}

// CheckRequest makes a party's worker look for the expected Deployments.
type CheckRequest struct {
	Expected []Expected `json:"expected"`
}

// CheckResult lists the expected Deployments that do not exist.
type CheckResult struct {
	Missing []Observation `json:"gone,omitempty"`
}

// ExpectedOf returns a serving's Deployments that the worker of a queue should find, except those that are known to be
// missing.
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
		all = append(all, Expected{ID: kd.Name, UID: string(kd.UID), Domain: p.Domain, Deployment: p.Deployment,
			ObservedDeployment: lastObserved(entry)})
	}
	return all
}

// Deleted returns the observation that the Deployment does not exist any more.
func (e Expected) Deleted() Observation {
	return Observation{ID: e.ID, UID: e.UID, Domain: e.Domain, Deployment: e.Deployment,
		Snapshot: DeploymentSnapshot{ObservedDeployment: e.ObservedDeployment}.Deleted(e.Deployment)}
}
