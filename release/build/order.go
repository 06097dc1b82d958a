// Package build decides how the services of COMPILE_DEPLOY are compiled: which Job builds a commit, what its state is,
// and what its result is. It accesses neither Git nor a cluster; activities/source applies its decisions.
package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
)

// The activities of a party's queue that build.
const (
	// ActivityResolve finds the commit of a branch. Request → Resolved.
	ActivityResolve = "source.Resolve"
	// ActivityBuild builds a commit, unless that was done before. Request → Built; a failure's data are a Built too.
	ActivityBuild = "source.Build"
)

// Order is a build that an item of a task requests. It contains no secrets: workflows carry it.
type Order struct {
	// Service is the service to build.
	Service string `json:"service"`
	// Repository is the address of the Git repository, and Branch the branch to build.
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	// Shown is the repository's address without secrets, for display.
	Shown string `json:"shown"`
	// Credentials is the Secret for the repository, in the namespace of the build; "": none.
	Credentials string `json:"credentials,omitempty"`
	// Image and Package are the pattern of the result; exactly one is set.
	Image   string `json:"image,omitempty"`
	Package string `json:"package,omitempty"`
	// TemplateSHA256 is the digest of the Job's template (TemplateDigest). The template itself is read from item Item
	// of task Task, so that no workflow history contains a manifest.
	TemplateSHA256 string `json:"templateSha256"`
	Task           string `json:"task,omitempty"`
	// Item is counted from 1.
	Item int `json:"item,omitempty"`
	// Template is the Job's template, for parties whose workers cannot read the records.
	Template json.RawMessage `json:"template,omitempty"`
	// DeadlineSeconds is the time limit for the build, and ResolveSeconds the one for finding the commit.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	ResolveSeconds  int64 `json:"resolveSeconds"`
	// UnreachableBudgetSeconds is how long the cluster may be unreachable before the build is interrupted; 0: without
	// limit.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
}

// Request asks a party's worker for a build, or for the commit to build.
type Request struct {
	Order
	// Party is the party whose worker builds; Namespace is the namespace of the Job and the Secret.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	// Commit is the commit to build; "" in a request for the commit.
	Commit string `json:"commit,omitempty"`
	// By is the workflow that requests the build: a failed Job of another workflow is built again.
	By string `json:"by"`
	// SpentSeconds is the part of the deadline that earlier, interrupted attempts have used.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
}

// Resolved is the commit of a branch.
type Resolved struct {
	Commit string `json:"commit"`
}

// Built is the result of a build, and its log.
type Built struct {
	// Job is the name of the Job that built it, in Request.Namespace.
	Job string `json:"job"`
	Yield
	// Reused is true if the Job was created by an earlier task.
	Reused bool `json:"reused,omitempty"`
	// Log is the end of the build's log.
	Log        string     `json:"log,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// shownCommit is how many characters of a commit are shown to people.
const shownCommit = 12

// Short returns a shortened commit for display.
func Short(commit string) string { return commit[:min(len(commit), shownCommit)] }

// String returns the build's description for messages.
func (r Request) String() string {
	return fmt.Sprintf("build of service %s at commit %s", r.Service, Short(r.Commit))
}

// TemplateDigest returns the digest of a Job's template in hexadecimal; it does not depend on formatting.
func TemplateDigest(template []byte) (string, error) {
	numbers := json.NewDecoder(bytes.NewReader(template))
	numbers.UseNumber()
	var parsed any
	if err := numbers.Decode(&parsed); err != nil {
		return "", failure.New(failure.Refused, "the template of the Job can't be read: %v", err)
	}
	canonical, err := json.Marshal(parsed)
	if err != nil {
		return "", err
	}
	return digest.Of(string(canonical)), nil
}

// Digest returns the same text for two builds exactly if they are interchangeable: the same service, repository,
// commit, template and pattern.
func (r Request) Digest() string {
	return digest.Of(r.Service, r.Repository, r.Commit, r.TemplateSHA256, r.Image, r.Package)
}

const (
	jobPrefix = "slipway-build-"
	// jobDigits is how many characters of the digest the name of a Job has: the names of its pods are longer and must
	// fit into a label.
	jobDigits = 20
)

// JobName returns the name of the Job of the build: requests for the same build get the same Job.
func (r Request) JobName() string { return jobPrefix + r.Digest()[:jobDigits] }

// ExpectedResult returns the image or the URL that the build must produce.
func (r Request) ExpectedResult() string {
	return catalog.FillCommit(r.Image+r.Package, r.Commit)
}
