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

// Change is what a release changed on a workload; what it did not change or does not know is empty.
type Change struct {
	// FromRevision and ToRevision are a Deployment's revision number, otherwise the update revision's name.
	FromRevision string `json:"fromRevision,omitempty"`
	ToRevision   string `json:"toRevision,omitempty"`
	// FromReplicas and ToReplicas are the sizes before and after, absent for a kind without a size.
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	ToReplicas   *int32 `json:"toReplicas,omitempty"`
	// FromPackage and ToPackage are the SHA-256 of the code packages before and after a deploy of one.
	FromPackage string `json:"fromPackage,omitempty"`
	ToPackage   string `json:"toPackage,omitempty"`
	// Before and After are the revisions before and after an operation that changes the pod template. RESTORE uses them.
	// Without a digest only their names are known.
	Before *Revision `json:"before,omitempty"`
	After  *Revision `json:"after,omitempty"`
}
