// Package build decides how the services of COMPILE_DEPLOY are compiled: which Job builds one commit, what has become of it, and what it has
// yielded. It knows neither Git nor a cluster; activities/source acts on what is decided here.
package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
)

// The activities of a party's queue that build.
const (
	// ActivityResolve finds the commit of a branch. Request → Resolved.
	ActivityResolve = "source.Resolve"
	// ActivityBuild builds a commit, unless that was done before. Request → Built; a failure's data are a Built too.
	ActivityBuild = "source.Build"
)

// Order is a build that an item of a task asks for. It has no secret in it: workflows carry it.
type Order struct {
	// Service is what is built.
	Service string `json:"service"`
	// Repository is the address of the Git repository, and Branch what is built of it.
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
	// Shown is the repository as it may be shown to everybody.
	Shown string `json:"shown"`
	// Credentials is the Secret, in the namespace of the build, that opens the repository; "": none.
	Credentials string `json:"credentials,omitempty"`
	// Image and Package are the pattern of what it yields; one of them is set.
	Image   string `json:"image,omitempty"`
	Package string `json:"package,omitempty"`
	// TemplateSHA256 is the digest of the Job's template (TemplateDigest). The template itself is read from item Item of task Task, so that no
	// history holds a manifest.
	TemplateSHA256 string `json:"templateSha256"`
	Task           string `json:"task,omitempty"`
	// Item is counted from 1.
	Item int `json:"item,omitempty"`
	// Template is the Job's template, for parties whose workers cannot read the records.
	Template json.RawMessage `json:"template,omitempty"`
	// DeadlineSeconds is how long the build may take, and ResolveSeconds the search for the commit.
	DeadlineSeconds int64 `json:"deadlineSeconds"`
	ResolveSeconds  int64 `json:"resolveSeconds"`
	// UnreachableBudgetSeconds is how long the cluster may be out of reach before the build is interrupted; 0: there is no limit.
	UnreachableBudgetSeconds int64 `json:"unreachableBudgetSeconds"`
}

// Request asks a party's worker for a build, or for the commit that is to be built.
type Request struct {
	Order
	// Party is whose worker is asked, and Namespace where the Job runs and the Secret is.
	Party     string `json:"party"`
	Namespace string `json:"namespace"`
	// Commit is what is built; "" where it is asked for.
	Commit string `json:"commit,omitempty"`
	// By is the workflow that asks: a failed Job of another one is built once more.
	By string `json:"by"`
	// SpentSeconds is what earlier, interrupted attempts have used of the deadline.
	SpentSeconds int64 `json:"spentSeconds,omitempty"`
}

// Resolved is the commit of a branch.
type Resolved struct {
	Commit string `json:"commit"`
}

// Built is what a build has yielded, and what it said.
type Built struct {
	// Job is the Job that has built it, in Request.Namespace.
	Job string `json:"job"`
	Yield
	// Reused says that the Job is of an earlier task.
	Reused bool `json:"reused,omitempty"`
	// Log is the end of what it wrote.
	Log        string     `json:"log,omitempty"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// shownCommit is how many characters of a commit people are shown.
const shownCommit = 12

// Short is a commit as people read it.
func Short(commit string) string { return commit[:min(len(commit), shownCommit)] }

// String names the build for sentences.
func (r Request) String() string {
	return fmt.Sprintf("build of service %s at commit %s", r.Service, Short(r.Commit))
}

// TemplateDigest is the digest of a Job's template, in hexadecimal, however it is written.
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
	return digestOf(string(canonical)), nil
}

// Digest is the same for two builds exactly when one is as good as the other: of the same service, repository and commit, by the same template,
// for the same pattern.
func (r Request) Digest() string {
	return digestOf(r.Service, r.Repository, r.Commit, r.TemplateSHA256, r.Image, r.Package)
}

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

const (
	jobPrefix = "slipway-build-"
	// jobDigits is how many characters of the digest the name of a Job has: that of its pods is longer, and must fit into a label.
	jobDigits = 20
)

// JobName is the name of the Job that makes the build: whoever asks for the same build comes to the same Job.
func (r Request) JobName() string { return jobPrefix + r.Digest()[:jobDigits] }

// Wants is the image or the URL that the build is to yield.
func (r Request) Wants() string {
	return catalog.FillCommit(r.Image+r.Package, r.Commit)
}
