package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"

	"slipway.io/slipway/release/strictyaml"
)

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
	for _, container := range append(pod.InitContainers[:len(pod.InitContainers):len(pod.InitContainers)],
		pod.Containers...) {
		for _, variable := range container.Env {
			if strings.HasPrefix(variable.Name, ReservedPrefix) {
				problems = append(problems, fmt.Errorf(
					"sets %s in container %s: names that begin with %s are Slipway's own", variable.Name,
					container.Name,
					ReservedPrefix))
			}
		}
	}
	return problems
}
