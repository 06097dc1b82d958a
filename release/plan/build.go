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
	// Repository is what was built, without user and password, Branch and Commit of which version.
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	Commit     string `json:"commit"`
	// Party and Namespace are where the Job ran, Job its name.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	Job       string `json:"job,omitempty"`
	// Image is the image that it has yielded, "repository@sha256:<hex>", Package the URL of the package; "" before, and for builds of the other
	// kind.
	Image   string `json:"image,omitempty"`
	Package string `json:"package,omitempty"`
	// Reused says that an earlier task has built the same commit the same way.
	Reused bool `json:"reused,omitempty"`
	// StartedAt and FinishedAt are the Job's.
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	// Log is the end of what the build wrote; that of a build that failed is longer.
	Log string `json:"log,omitempty"`
}

// String is "https://host/order.git, branch main, commit 0123…, by Job shop/slipway-build-0123".
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

// Yields is what the build has made; "" before it has.
func (b BuildStatus) Yields() string { return b.Image + b.Package }

// Image is what item n (an index into the document) deploys, if that is an image: not built yet. It is nil for other items.
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

// Build is what item n (an index into the document), a COMPILE_DEPLOY, has built; nil for other items.
func (s Snapshot) Build(n int) *build.Order {
	item := s.Document.Items[n]
	service := s.Services[item.ServiceID]
	if item.Deployment != CompileDeploy || service.Build == nil {
		return nil
	}
	b := service.Build
	order := &build.Order{Service: string(item.ServiceID), Repository: item.CompileRepoPath, Branch: item.CompileRepoBranch,
		Shown: source.RedactRepository(item.CompileRepoPath), Credentials: b.Credentials, Image: b.Image, Package: b.Package, Task: s.Task, Item: n + 1,
		DeadlineSeconds: service.BuildDeadline(), ResolveSeconds: service.Deadline(), UnreachableBudgetSeconds: s.UnreachableBudgetSeconds}
	// A template that can't be read has been refused already, and is once more where the Job is made.
	order.TemplateSHA256, _ = build.TemplateDigest(b.JobTemplate.Raw)
	if workloads := s.Selected(n); len(workloads) > 0 && s.Queues[workloads[0].PartyOrDefault()] != catalog.PartyQueue(catalog.DefaultParty) {
		order.Template = b.JobTemplate.Raw
	}
	return order
}
