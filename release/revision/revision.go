// Package revision identifies revisions of workloads in records and messages. Their pod templates stay in the cluster.
package revision

// Revision is a revision of a workload, as recorded by a release.
type Revision struct {
	// Template is the SHA-256 of its pod template's canonical JSON, as package pods computes it; "": not recorded.
	Template string `json:"template,omitempty"`
	// Name is a Deployment's pod-template-hash, otherwise the name of the ControllerRevision; "" if unknown.
	Name string `json:"name,omitempty"`
	// Images are the images of its containers, by container name; for display only.
	Images map[string]string `json:"images,omitempty"`
}
