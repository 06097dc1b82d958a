// Package revision names the revisions of workloads in records and messages. Their pod templates stay in the cluster.
package revision

// Revision is a revision of a workload as a release recorded it.
type Revision struct {
	// Template is the SHA-256 of its pod template's canonical JSON, as package pods makes it; "": it was not recorded.
	Template string `json:"template,omitempty"`
	// Name is the revision's own: a Deployment's pod-template-hash, otherwise the name of the ControllerRevision; "" when unknown.
	Name string `json:"name,omitempty"`
	// Images are those of its containers, by name; for people.
	Images map[string]string `json:"images,omitempty"`
}
