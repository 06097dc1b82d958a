package audit

// WorkflowRef points at the Temporal workflow behind a release.
type WorkflowRef struct {
	ID    string `json:"id"`
	RunID string `json:"runId,omitempty"`
	URL   string `json:"url,omitempty"`
}
