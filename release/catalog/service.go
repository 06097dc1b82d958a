// Package catalog defines the services that a release can name and their workloads.
//
// +kubebuilder:object:generate=true
package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/workload"
)

// DefaultParty is the party of a workload that names none: the engine's own cluster.
const DefaultParty = "default"

// defaultDeadlineSeconds is the default time limit of one operation on a service.
const defaultDeadlineSeconds = 600

// Service is a catalogue entry, referenced by a plan's serviceId. Its ID is the name of the ReleaseService object that
// contains it.
type Service struct {
	// DisplayName is the service's name for people.
	DisplayName string `json:"displayName,omitempty"`
	// Workloads are the parts of the service; at least one.
	// +kubebuilder:validation:MinItems=1
	Workloads []Workload `json:"workloads"`
	// DeadlineSeconds is how long one operation on the service may take; time in which its cluster is unreachable does
	// not count. Default 600.
	// +kubebuilder:validation:Minimum=1
	DeadlineSeconds int64 `json:"deadlineSeconds,omitempty" most:"86400" form:"seconds"`
	// Package specifies how a code package reaches the containers (HTTP_UPLOAD_DEPLOY).
	Package *Package `json:"package,omitempty"`
	// Build specifies how the service is compiled (COMPILE_DEPLOY).
	Build *Build `json:"build,omitempty"`
	// Strategy is the strategy of a Rollout. If it is set, a deploy of the service releases each workload by its own
	// Rollout. Package strategy reads it (strategy.ServiceRollout).
	// +kubebuilder:pruning:PreserveUnknownFields
	Strategy *apiextensionsv1.JSON `json:"strategy,omitempty"`
	// Policy is the policy that belongs to Strategy, as in a Rollout.
	// +kubebuilder:pruning:PreserveUnknownFields
	Policy *apiextensionsv1.JSON `json:"policy,omitempty"`
}

// RollsOut reports whether deploys of the service are Rollouts.
func (s Service) RollsOut() bool { return s.Strategy != nil }

// Workload is one Kubernetes object of a service.
type Workload struct {
	// Party is the party whose cluster has the workload; absent: the party "default".
	Party string `json:"party,omitempty"`
	// Namespace of the workload.
	Namespace string `json:"namespace"`
	// WorkloadRef names the object.
	WorkloadRef WorkloadRef `json:"workloadRef"`
	// Labels are selected by an item's deployLabel. They belong to the catalogue, not to the object.
	Labels []string `json:"labels,omitempty"`
	// Replicas is the size that START restores if the object has no saved size.
	// +kubebuilder:validation:Minimum=1
	Replicas *int32 `json:"replicas,omitempty"`
}

// WorkloadRef names an object within its namespace.
type WorkloadRef struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Package specifies how a code package reaches a service's containers.
type Package struct {
	// Container is the container that gets the package.
	Container string `json:"container"`
	// MountPath is the folder of that container where the package is.
	MountPath string `json:"mountPath"`
	// Credentials is a Secret in the workload's namespace: username and password, or token, and the hosts that they may
	// be sent to.
	Credentials string `json:"credentials,omitempty"`
	// Unpack is true if the package is an archive to be unpacked; false: it is kept as one file, such as a jar or war.
	// Default true.
	Unpack *bool `json:"unpack,omitempty"`
	// File is the file name of a package that is not unpacked; default: the last segment of its URL's path.
	File string `json:"file,omitempty"`
}

// Unpacked reports whether the package is unpacked.
func (p Package) Unpacked() bool { return p.Unpack == nil || *p.Unpack }

// Build specifies how a service is compiled and what the build yields: an image, or a package at a URL.
type Build struct {
	// JobTemplate is the Kubernetes Job template that compiles one commit.
	// +kubebuilder:pruning:PreserveUnknownFields
	JobTemplate apiextensionsv1.JSON `json:"jobTemplate"`
	// Image is the pattern of the image that the build pushes; {{commit}} is replaced by the commit.
	Image string `json:"image,omitempty"`
	// Package is the pattern of the URL of the package that the build yields; the alternative to Image.
	Package string `json:"package,omitempty"`
	// Container is the container of the workloads that gets the image; absent: that of Service.Package, otherwise the
	// only container.
	Container string `json:"container,omitempty"`
	// Credentials is a Secret in the namespace of the first workload that opens the Git repository: username and
	// password, or token, and the hosts that they may be sent to; for ssh, ssh-privatekey and known_hosts.
	Credentials string `json:"credentials,omitempty"`
	// DeadlineSeconds is how long the build may take; absent: as long as an operation on the service.
	// +kubebuilder:validation:Minimum=1
	DeadlineSeconds int64 `json:"deadlineSeconds,omitempty" most:"86400" form:"seconds"`
}

// PartyOrDefault returns the party of the workload, "default" if it names none.
func (w Workload) PartyOrDefault() string { return cmp.Or(w.Party, DefaultParty) }

// String returns the workload for messages: "Deployment shop/order", with the party in front unless it is the default
// one.
func (w Workload) String() string {
	name := w.WorkloadRef.Kind + " " + w.Namespace + "/" + w.WorkloadRef.Name
	if w.PartyOrDefault() != DefaultParty {
		return w.PartyOrDefault() + ": " + name
	}
	return name
}

// Deadline returns how long one operation on the service may take, in seconds.
func (s Service) Deadline() int64 { return cmp.Or(s.DeadlineSeconds, defaultDeadlineSeconds) }

// APIVersion is the API version of all kinds that plans act on so far.
const APIVersion = "apps/v1"

// OperatedKinds returns the kinds that plans act on.
func OperatedKinds() []string {
	operated := func(k workload.Kind) bool { return k.Resource.GroupVersion().String() == APIVersion }
	return phrase.Each(workload.Where(operated), workload.Kind.String)
}

// Lookup returns the workload's kind, in the workload's own API version; the zero value if it is unknown.
func (r WorkloadRef) Lookup() workload.Kind {
	k := workload.Of(r.APIVersion, r.Kind)
	k.Resource.Version = schema.FromAPIVersionAndKind(r.APIVersion, "").Version
	return k
}

// Operated reports whether plans act on workloads of this API version and kind.
func (r WorkloadRef) Operated() bool { return r.APIVersion == APIVersion && r.Lookup().Known() }

// supported returns why plans cannot act on workloads of this API version and kind, nil if they can.
func (r WorkloadRef) supported() error {
	kind, version := strictyaml.Quote(r.Kind), strictyaml.Quote(r.APIVersion)
	list := workload.Join(OperatedKinds(), " and ")
	switch {
	case r.Operated():
		return nil
	case r.APIVersion == APIVersion:
		near := strictyaml.DidYouMean(r.Kind, OperatedKinds())
		return fmt.Errorf("%s of %s cannot be released: %s can%s", kind, APIVersion, list, near)
	case workload.Of(APIVersion, r.Kind).Known():
		return fmt.Errorf("%s of %s cannot be released: write apiVersion: %s", r.Kind, version, APIVersion)
	}
	return fmt.Errorf("%s of %s is not available yet: %s of %s are", kind, version, list, APIVersion)
}

// Sized reports whether workloads of this kind have a number of replicas.
func (r WorkloadRef) Sized() bool { return !r.Lookup().PerNode }

// Identity returns the same text for two entries exactly if they are the same object: party, API group, kind, namespace
// and name.
func (w Workload) Identity() string {
	group := schema.FromAPIVersionAndKind(w.WorkloadRef.APIVersion, w.WorkloadRef.Kind).Group
	return strings.Join([]string{w.PartyOrDefault(), group, w.WorkloadRef.Kind, w.Namespace, w.WorkloadRef.Name}, "/")
}

// EngineQueue is the Temporal task queue of all workflows and of the centre's own activities. No party uses it.
const EngineQueue = "slipway"

// PartyQueue returns the default Temporal task queue of a party.
func PartyQueue(party string) string { return "slipway.party." + party }

// QueueOf returns the queue of a party: own, the queue in its object, or the default if own is "".
func QueueOf(party, own string) string { return cmp.Or(own, PartyQueue(party)) }

// commitPlaceholder is the placeholder of the commit in the patterns of a Build.
const commitPlaceholder = "{{commit}}"

// sampleCommit is the commit with which patterns are checked.
const sampleCommit = "0123456789abcdef0123456789abcdef01234567"

// FillCommit returns a pattern of a Build with a commit filled in.
func FillCommit(pattern, commit string) string {
	return strings.ReplaceAll(pattern, commitPlaceholder, commit)
}

// FillSample returns a pattern of a Build with a sample commit, while the commit is unknown.
func FillSample(pattern string) string { return FillCommit(pattern, sampleCommit) }

// BuildDeadline returns how long a build of the service may take, in seconds.
func (s Service) BuildDeadline() int64 { return cmp.Or(s.Build.DeadlineSeconds, s.Deadline()) }

var placeholder = regexp.MustCompile(`\{\{[^{}]*\}\}`)

func (b Build) check(found *strictyaml.Findings) {
	for _, problem := range jobTemplateProblems(b.JobTemplate.Raw) {
		found.Check(0, "build.jobTemplate", problem)
	}
	unreadable := found.Unreadable("build.image") || found.Unreadable("build.package")
	switch {
	case b.Image == "" && b.Package == "" && !unreadable:
		found.Refuse(0, "build", "yields nothing: name the image that it pushes, or the URL of the package that it "+
			"creates")
	case b.Image != "" && b.Package != "":
		found.Refuse(0, "build", "names both an image and a package: a build yields one of them")
	}
	if b.Image != "" {
		found.Check(0, "build.image", validPattern(b.Image, validImage))
	}
	if b.Package != "" {
		found.Check(0, "build.package", validPattern(b.Package, validPackageURL))
	}
	if b.Container != "" {
		checkName(found, "build.container", b.Container, validation.IsDNS1123Label)
		if b.Package != "" {
			found.Refuse(0, "build.container", "is for a build that yields an image: a package goes to "+
				"package.container")
		}
	}
	if b.Credentials != "" {
		checkName(found, "build.credentials", b.Credentials, validation.IsDNS1123Subdomain)
	}
	if b.DeadlineSeconds < 0 || b.DeadlineSeconds > maxDeadlineSeconds {
		found.Refuse(0, "build.deadlineSeconds", "must be from 1 to %d, not %d", maxDeadlineSeconds, b.DeadlineSeconds)
	}
}

// validPackageURL returns what is wrong with the URL of a package that a build yields. Everyone who can read a task
// sees the URL, so it must contain no secrets.
func validPackageURL(text string) error {
	if err := ValidURL(text, "http", "https"); err != nil {
		return err
	}
	if at, err := url.Parse(text); err != nil || at.RawQuery != "" || at.Fragment != "" {
		return errors.New("has a query or a fragment: write a plain URL; put further parameters of the download into " +
			"the Secret of package.credentials")
	}
	return nil
}

// validPattern returns what is wrong with a pattern: it must contain {{commit}} and no other placeholder, and be legal
// with a commit filled in.
func validPattern(pattern string, legal func(string) error) error {
	for _, found := range placeholder.FindAllString(pattern, -1) {
		if found != commitPlaceholder {
			return fmt.Errorf("has the unknown placeholder %s: write %s", strictyaml.Quote(found), commitPlaceholder)
		}
	}
	filled := FillSample(pattern)
	switch {
	case filled == pattern:
		return fmt.Errorf("must contain %s, so that every commit has its own result", commitPlaceholder)
	case strings.ContainsAny(filled, "{}"):
		return fmt.Errorf("has a brace that belongs to no placeholder: write %s", commitPlaceholder)
	}
	return legal(filled)
}

func validImage(image string) error {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return fmt.Errorf("is not the name of an image: %w", err)
	}
	if _, pinned := named.(reference.Digested); pinned {
		return errors.New("names a digest, which only the build can determine: leave out the @ and everything after it")
	}
	return nil
}

// jobTemplateProblems returns what is wrong with the template of the Job that compiles.
func jobTemplateProblems(raw []byte) []error {
	if len(raw) == 0 || string(raw) == "null" {
		return []error{errors.New("is required: the template of the Job that compiles one commit")}
	}
	var template batchv1.JobTemplateSpec
	problems, err := json.UnmarshalStrict(raw, &template)
	if err != nil {
		return []error{fmt.Errorf("is not the template of a Job: %w", err)}
	}
	containers := template.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		problems = append(problems, errors.New("has no container in spec.template.spec.containers: a build needs at "+
			"least one"))
	}
	for i, container := range containers {
		if container.Name == "" || container.Image == "" {
			problems = append(problems, fmt.Errorf(
				"has a container without name or image: spec.template.spec.containers[%d]", i))
		}
	}
	return append(problems, jobRules(template)...)
}

// ReservedPrefix is the prefix of the variables that Slipway sets in the containers of a build.
const ReservedPrefix = "SLIPWAY_"

// jobRules rejects settings that would prevent a build from running exactly once, or its result from being read.
func jobRules(template batchv1.JobTemplateSpec) []error {
	spec, pod := template.Spec, template.Spec.Template.Spec
	var problems []error
	for _, rule := range []struct {
		broken     bool
		field, why string
	}{
		{spec.BackoffLimit != nil && *spec.BackoffLimit != 0 || spec.BackoffLimitPerIndex != nil, "backoffLimit",
			"a build that fails is not repeated"},
		{spec.Parallelism != nil && *spec.Parallelism != 1, "parallelism", "a build runs in one pod"},
		{spec.Completions != nil && *spec.Completions != 1 || spec.CompletionMode != nil &&
			*spec.CompletionMode != batchv1.NonIndexedCompletion, "completions", "a build runs in one pod"},
		{spec.PodFailurePolicy != nil, "podFailurePolicy", "a build that fails is not repeated"},
		{spec.SuccessPolicy != nil, "successPolicy", "a build runs in one pod"},
		{spec.TTLSecondsAfterFinished != nil, "ttlSecondsAfterFinished",
			"a finished Job holds the result of the build; Slipway removes older ones itself"},
		{spec.Suspend != nil && *spec.Suspend, "suspend", "the build would never run"},
		{spec.Selector != nil || spec.ManualSelector != nil, "selector", "Kubernetes generates it"},
		{spec.ManagedBy != nil, "managedBy", "the Job controller of Kubernetes runs builds"},
		{pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyNever, "template.spec.restartPolicy",
			"a build that fails is not repeated; write Never"},
	} {
		if rule.broken {
			problems = append(problems, fmt.Errorf("has spec.%s: leave it out, since %s", rule.field, rule.why))
		}
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, variable := range container.Env {
			if strings.HasPrefix(variable.Name, ReservedPrefix) {
				problems = append(problems, fmt.Errorf(
					"sets %s in container %s: names that begin with %s are Slipway's own", variable.Name,
					container.Name, ReservedPrefix))
			}
		}
	}
	return problems
}
