package serving

import (
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// A party's worker sees what is there, and learns of a deletion while it watches. What somebody has deleted while no worker was running is seen by nobody: so a
// worker that starts is told what it should find.

// ExpectedRequest asks for one page of the Deployments that the worker of a queue should find in its cluster. "" is the first page.
type ExpectedRequest struct {
	Queue  string `json:"queue"`
	Cursor string `json:"cursor,omitempty"`
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
	// DeploymentUID, CreatedAt and ResourceVersion say which Deployment it was, Replicas how many pods it had.
	DeploymentUID   string    `json:"deploymentUid"`
	CreatedAt       time.Time `json:"createdAt"`
	ResourceVersion string    `json:"resourceVersion"`
	Replicas        int32     `json:"replicas"`
}

// CheckRequest has a party's worker look for Deployments.
type CheckRequest struct {
	Expected []Expected `json:"expected"`
}

// CheckResult tells of those that are not there.
type CheckResult struct {
	Gone []Observation `json:"gone,omitempty"`
}

// ExpectedOf are the Deployments of a serving that the worker of a queue should find. One that is known to be missing is not asked for again.
func ExpectedOf(kd *kuscia.KusciaDeployment, queue string) []Expected {
	if kd.DeletionTimestamp != nil {
		return nil
	}
	var all []Expected
	for _, p := range Members(kd) {
		entry := kd.Status.PartyDeploymentStatuses[p.Domain][p.Deployment]
		if p.Queue != queue || entry.ObservedAt == nil || entry.DeploymentUID == "" || len(entry.Missing) > 0 {
			continue
		}
		one := Expected{ID: kd.Name, UID: string(kd.UID), Domain: p.Domain, Deployment: p.Deployment, DeploymentUID: entry.DeploymentUID,
			ResourceVersion: entry.DeploymentVersion, Replicas: entry.Replicas}
		if entry.CreationTimestamp != nil {
			one.CreatedAt = entry.CreationTimestamp.UTC()
		}
		all = append(all, one)
	}
	return all
}

// Gone tells that the Deployment is not there any more.
func (e Expected) Gone() Observation {
	was := Seen{DeploymentUID: e.DeploymentUID, CreatedAt: e.CreatedAt, ResourceVersion: e.ResourceVersion, Replicas: e.Replicas}
	return Observation{ID: e.ID, UID: e.UID, Domain: e.Domain, Deployment: e.Deployment, Seen: was.Gone(e.Deployment)}
}
