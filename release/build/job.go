// Package build decides how the services of COMPILE_DEPLOY are compiled: which Job builds a commit, what its state is,
// and what its result is. It accesses neither Git nor a cluster; activities/source applies its decisions.
package build

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
)

// Names on a Job that builds.
const (
	// LabelService is the service that is built.
	LabelService = "slipway.io/build-of"
	// AnnotationDigest is Request.Digest: it identifies what the Job builds.
	AnnotationDigest = "slipway.io/build"
	// AnnotationBy is the workflow that created the Job.
	AnnotationBy = "slipway.io/build-by"
	// AnnotationYield is the result of the build, written once it was read: the Job outlives its pod.
	AnnotationYield = "slipway.io/build-yield"
	// AnnotationCommit, AnnotationBranch and AnnotationRepository are for people.
	AnnotationCommit     = "slipway.io/commit"
	AnnotationBranch     = "slipway.io/branch"
	AnnotationRepository = "slipway.io/repository"
)

// The environment variables that describe the build to its containers. Their values are never part of a command.
const (
	EnvService    = catalog.ReservedPrefix + "SERVICE"
	EnvRepository = catalog.ReservedPrefix + "GIT_URL"
	EnvBranch     = catalog.ReservedPrefix + "GIT_BRANCH"
	EnvCommit     = catalog.ReservedPrefix + "GIT_COMMIT"
	// EnvImage is the image to push, EnvPackage the URL of the package to upload: the pattern of the catalogue with the
	// commit filled in.
	EnvImage   = catalog.ReservedPrefix + "BUILD_IMAGE"
	EnvPackage = catalog.ReservedPrefix + "BUILD_PACKAGE"
)

// Job returns the Job of a build, made from its template in the catalogue. It runs once: a retry would hide a failure.
func (r Request) Job(template []byte) (*batchv1.Job, error) {
	digest, err := TemplateDigest(template)
	if err != nil {
		return nil, err
	}
	if digest != r.TemplateSHA256 {
		return nil, failure.New(failure.Refused, "%s: the template of its Job is not the one that the task was "+
			"started with", r)
	}
	var made batchv1.JobTemplateSpec
	if err := json.Unmarshal(template, &made); err != nil {
		return nil, failure.New(failure.Refused, "%s: build.jobTemplate is not the template of a Job: %v", r, err)
	}
	if len(made.Spec.Template.Spec.Containers) == 0 {
		return nil, failure.New(failure.Refused, "%s: build.jobTemplate has no container", r)
	}
	job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		Spec: made.Spec}
	job.Name, job.Namespace = r.JobName(), r.Namespace
	job.Labels, job.Annotations = labels.Merge(made.Labels, labels.Set{LabelService: r.Service}),
		labels.Merge(made.Annotations, labels.Set{AnnotationDigest: r.Digest(), AnnotationBy: r.By,
			AnnotationCommit: r.Commit, AnnotationBranch: r.Branch, AnnotationRepository: r.Shown})
	job.Spec.BackoffLimit, job.Spec.Parallelism, job.Spec.Completions = new(int32), new(int32(1)), new(int32(1))
	if own := job.Spec.ActiveDeadlineSeconds; own == nil || *own > r.DeadlineSeconds {
		job.Spec.ActiveDeadlineSeconds = new(r.DeadlineSeconds)
	}
	r.prepare(&job.Spec.Template)
	return job, nil
}

// prepare sets the pod's environment variables, and removes what a build does not need.
func (r Request) prepare(pod *corev1.PodTemplateSpec) {
	pod.Labels = labels.Merge(pod.Labels, labels.Set{LabelService: r.Service})
	spec := &pod.Spec
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.AutomountServiceAccountToken = cmp.Or(spec.AutomountServiceAccountToken, new(bool))
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = append(r.environment(), containers[i].Env...)
		}
	}
	// The end of the log is kept in the pod's status, even for users who may not read logs.
	first := &spec.Containers[0]
	first.TerminationMessagePolicy = cmp.Or(first.TerminationMessagePolicy,
		corev1.TerminationMessageFallbackToLogsOnError)
}

func (r Request) environment() []corev1.EnvVar {
	yields := EnvImage
	if r.Package != "" {
		yields = EnvPackage
	}
	var env []corev1.EnvVar
	for _, variable := range [][2]string{{EnvService, r.Service}, {EnvRepository, r.Repository}, {EnvBranch, r.Branch},
		{EnvCommit, r.Commit}, {yields, r.ExpectedResult()}} {
		env = append(env, corev1.EnvVar{Name: variable[0], Value: source.Literal(variable[1])})
	}
	return env
}

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
	// ReportBlocked makes the activity return Built.Blocked as soon as the Job's pod is not created or does not start.
	// The workflow publishes that and repeats the request.
	ReportBlocked bool `json:"reportBlocked,omitempty"`
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
	// Blocked is set if the build has not ended because the Job's pod is not created or does not start, and says why.
	// SpentSeconds is how much of the deadline it has used.
	Blocked      string `json:"blocked,omitempty"`
	SpentSeconds int64  `json:"spentSeconds,omitempty"`
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

// Yield is the result of a build: an image or a package.
type Yield struct {
	// Image is "repository@sha256:<hex>".
	Image string `json:"image,omitempty"`
	// Package is the URL of a package, and SHA256 the digest of its bytes.
	Package string `json:"package,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

const (
	digestMark = "sha256:"
	// longestResult is the maximum length of a result in bytes: Kubernetes truncates termination messages to it.
	longestResult = 4096
)

var resultForm = regexp.MustCompile(`^(.*)([@ ])` + digestMark + `([0-9a-f]{64})$`)

// ParseYield parses the result of a build, which is the termination message of its first container. It is one line,
// optionally with a line break at its end, and nothing else:
//
//	image@sha256:<64 digits>      of a build of an image: the name is the pattern's, with or without its tag
//	URL sha256:<64 digits>        of a build of a package: the URL is the pattern's
//
// Digits are hexadecimal, in lower case. The error is a clause that says what is wrong.
func (r Request) ParseYield(message string) (Yield, error) {
	line := strings.TrimSuffix(strings.TrimSuffix(message, "\n"), "\r")
	switch {
	case line == "":
		return Yield{}, fmt.Errorf("it wrote no result: its first container has to write %s to its termination "+
			"message (/dev/termination-log)", r.form())
	case len(message) >= longestResult || strings.ContainsFunc(line, func(c rune) bool { return c < ' ' || c > '~' }):
		return Yield{}, fmt.Errorf("its result is not one line of plain text: its first container has to write %s "+
			"and nothing else to its termination message", r.form())
	}
	expected, parts := r.ExpectedResult(), resultForm.FindStringSubmatch(line)
	what, separator := r.yields()
	if parts == nil || parts[2] != separator {
		return Yield{}, fmt.Errorf("its result is %s, not %s", strictyaml.Quote(line), r.form())
	}
	name, repository := parts[1], source.WithoutTag(expected)
	switch {
	case name != expected && (r.Package != "" || name != repository):
		return Yield{}, fmt.Errorf("its result names the %s %s, but build.%s in the catalogue names %s", what,
			strictyaml.Quote(name), what, expected)
	case r.Package != "":
		return Yield{Package: name, SHA256: parts[3]}, nil
	}
	return Yield{Image: repository + "@" + digestMark + parts[3]}, nil
}

// yields returns what the build yields, and what separates its name from its digest.
func (r Request) yields() (what, separator string) {
	if r.Package != "" {
		return "package", " "
	}
	return "image", "@"
}

// form returns the expected format of the result.
func (r Request) form() string {
	_, separator := r.yields()
	return r.ExpectedResult() + separator + digestMark + "…"
}

// String returns the result in the form that ParseYield reads.
func (y Yield) String() string {
	if y.Image != "" {
		return y.Image
	}
	return y.Package + " " + digestMark + y.SHA256
}

const (
	// longestLog is how many bytes of a failed build's log are kept, shortLog of one that succeeded: a task must fit
	// into one Temporal response, even if it builds many services.
	longestLog, shortLog = 2000, 400
	// longestLine is how many bytes of a line a message quotes.
	longestLine = 300
	ellipsis    = "…"
)

// TailLines is how many lines of a build's log are read.
const TailLines = 40

// Tail returns the end of a log for storage and display: without control characters, and without user, password and
// query in URLs.
func Tail(log string, failed bool) string {
	most := shortLog
	if failed {
		most = longestLog
	}
	// without user, password and query of URLs
	log = query.ReplaceAllString(userInfo.ReplaceAllString(log, "${1}"), "${1}?…")
	log = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(log, "?")))
	if len(log) <= most {
		return log
	}
	log = log[len(log)-most+len(ellipsis):]
	if at := strings.IndexByte(log, '\n'); at >= 0 && at < len(log)-1 {
		log = log[at+1:]
	}
	return ellipsis + strings.ToValidUTF8(log, "")
}

var (
	userInfo = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)[^\s/@]*@`)
	query    = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s?#"'<>]*)[?#][^\s"'<>]*`)
)

// lastLine returns the last line of a text that is not blank.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(Tail(text, true)), "\n")
	return phrase.Cut(strings.TrimSpace(lines[len(lines)-1]), longestLine)
}
