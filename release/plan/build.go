package plan

import (
	"cmp"
	"fmt"
	"time"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/source"
)

// BuildStatus is a build of COMPILE_DEPLOY.
type BuildStatus struct {
	// Repository is the repository that was built, without user and password; Branch and Commit are the built version.
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	Commit     string `json:"commit"`
	// Party and Namespace are where the Job ran; Job is its name.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Job       string `json:"job,omitempty"`
	// Image is the image that it produced ("repository@sha256:<hex>"), Package the URL of the package; "" until it has
	// finished, and for builds of the other kind.
	Image   string `json:"image,omitempty"`
	Package string `json:"package,omitempty"`
	// Reused means that an earlier task has built the same commit in the same way.
	Reused bool `json:"reused,omitempty"`
	// StartedAt and FinishedAt are the times of the Job.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Log is the end of the build's log; for a failed build it is longer.
	Log string `json:"log,omitempty"`
}

// String returns "https://host/order.git, branch main, commit 0123…, by Job shop/slipway-build-0123".
func (b BuildStatus) String() string {
	text := fmt.Sprintf("%s, branch %s, commit %s", b.Repository, b.Branch, b.Commit)
	if b.Job != "" {
		text += fmt.Sprintf(", by Job %s/%s", b.Namespace, b.Job)
	}
	if b.Party != catalog.DefaultParty {
		text += " of party " + b.Party
	}
	if b.Reused {
		text += ", which an earlier task has run"
	}
	return text
}

// Yields returns the image or package that the build produced; "" until it has finished.
func (b BuildStatus) Yields() string { return b.Image + b.Package }

// Image returns the image that item n (an index into the document) deploys, before it is built; nil if it deploys none.
func (s Snapshot) Image(n int) *source.Image {
	item := s.Document.Items[n]
	service := s.Services[item.ServiceID]
	if item.Deployment != CompileDeploy || service.Build == nil || service.Build.Image == "" {
		return nil
	}
	container := service.Build.Container
	if service.Package != nil {
		container = cmp.Or(container, service.Package.Container)
	}
	return &source.Image{Container: container}
}

// Build returns the build of item n (an index into the document), a COMPILE_DEPLOY; nil for other items.
func (s Snapshot) Build(n int) *build.Order {
	item := s.Document.Items[n]
	service := s.Services[item.ServiceID]
	if item.Deployment != CompileDeploy || service.Build == nil {
		return nil
	}
	b := service.Build
	order := &build.Order{Service: string(item.ServiceID), Repository: item.CompileRepoPath,
		Branch: item.CompileRepoBranch, Shown: source.RedactRepository(item.CompileRepoPath),
		Credentials: b.Credentials, Image: b.Image, Package: b.Package, Task: s.Task, Item: n + 1,
		DeadlineSeconds: service.BuildDeadline(), ResolveSeconds: service.Deadline(),
		UnreachableBudgetSeconds: s.UnreachableBudgetSeconds}
	// An unreadable template has already been refused, and is refused again where the Job is created.
	order.TemplateSHA256, _ = build.TemplateDigest(b.JobTemplate.Raw)
	if workloads := s.Selected(n); len(workloads) > 0 &&
		s.Queues[workloads[0].PartyOrDefault()] != catalog.PartyQueue(catalog.DefaultParty) {
		order.Template = b.JobTemplate.Raw
	}
	return order
}
