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

// commitPlaceholder stands for the commit in the patterns of a Build.
const commitPlaceholder = "{{commit}}"

// sampleCommit is what a pattern is tried with.
const sampleCommit = "0123456789abcdef0123456789abcdef01234567"

// FillCommit is a pattern of a Build with a commit in it.
func FillCommit(pattern, commit string) string {
	return strings.ReplaceAll(pattern, commitPlaceholder, commit)
}

// FillSample is a pattern of a Build as it could be for some commit, where none is known yet.
func FillSample(pattern string) string { return FillCommit(pattern, sampleCommit) }

// BuildDeadline is how long a build of the service may take, in seconds.
func (s Service) BuildDeadline() int64 { return cmp.Or(s.Build.DeadlineSeconds, s.Deadline()) }

var placeholder = regexp.MustCompile(`\{\{[^{}]*\}\}`)

func (b Build) check(found *strictyaml.Findings) {
	for _, problem := range jobTemplateProblems(b.JobTemplate.Raw) {
		found.Check(0, "build.jobTemplate", problem)
	}
	unreadable := found.Unreadable("build.image") || found.Unreadable("build.package")
	switch {
	case b.Image == "" && b.Package == "" && !unreadable:
		found.Refuse(0, "build", "yields nothing: name the image that it pushes, or the URL of the package that it makes")
	case b.Image != "" && b.Package != "":
		found.Refuse(0, "build", "names both an image and a package: a build yields one of them")
	}
	if b.Image != "" {
		found.Check(0, "build.image", validPattern(b.Image, validImage))
	}
	if b.Package != "" {
		found.Check(0, "build.package", validPattern(b.Package, validYield))
	}
	if b.Container != "" {
		checkName(found, "build.container", b.Container, validation.IsDNS1123Label)
		if b.Package != "" {
			found.Refuse(0, "build.container", "is for a build that yields an image: package.container says where a package goes")
		}
	}
	if b.Credentials != "" {
		checkName(found, "build.credentials", b.Credentials, validation.IsDNS1123Subdomain)
	}
	if b.DeadlineSeconds < 0 || b.DeadlineSeconds > maxDeadlineSeconds {
		found.Refuse(0, "build.deadlineSeconds", "must be from 1 to %d, not %d", maxDeadlineSeconds, b.DeadlineSeconds)
	}
}

// validYield says what is wrong with the URL of a package that a build yields. Everybody who sees a task sees it, so that nothing is hidden in it.
func validYield(text string) error {
	if err := ValidURL(text, "http", "https"); err != nil {
		return err
	}
	if at, err := url.Parse(text); err != nil || at.RawQuery != "" || at.Fragment != "" {
		return errors.New("has a query or a fragment: write a plain URL; what the download needs besides belongs into the Secret of package.credentials")
	}
	return nil
}

// validPattern says what is wrong with a pattern: it must hold {{commit}}, no other placeholder, and be legal once a commit stands in it.
func validPattern(pattern string, legal func(string) error) error {
	for _, found := range placeholder.FindAllString(pattern, -1) {
		if found != commitPlaceholder {
			return fmt.Errorf("has the placeholder %s, which means nothing here: write %s", strictyaml.Quote(found), commitPlaceholder)
		}
	}
	filled := FillSample(pattern)
	switch {
	case filled == pattern:
		return fmt.Errorf("must hold %s, so that every commit yields something of its own", commitPlaceholder)
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
		return errors.New("names a digest, which only the build can know: leave out the @ and what follows")
	}
	return nil
}

// jobTemplateProblems are what is wrong with the template of the Job that compiles.
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
		problems = append(problems, errors.New("has no container in spec.template.spec.containers: a build needs at least one"))
	}
	for i, container := range containers {
		if container.Name == "" || container.Image == "" {
			problems = append(problems, fmt.Errorf("has a container without name or image: spec.template.spec.containers[%d]", i))
		}
	}
	return append(problems, jobRules(template)...)
}

// ReservedPrefix is that of the variables which Slipway sets in the containers of a build.
const ReservedPrefix = "SLIPWAY_"

// jobRules refuses what would keep a build from running once, or its result from being read.
func jobRules(template batchv1.JobTemplateSpec) []error {
	spec, pod := template.Spec, template.Spec.Template.Spec
	var problems []error
	for _, rule := range []struct {
		broken     bool
		field, why string
	}{
		{spec.BackoffLimit != nil && *spec.BackoffLimit != 0 || spec.BackoffLimitPerIndex != nil, "backoffLimit", "a build that fails is not repeated"},
		{spec.Parallelism != nil && *spec.Parallelism != 1, "parallelism", "one pod makes a build"},
		{spec.Completions != nil && *spec.Completions != 1 || spec.CompletionMode != nil && *spec.CompletionMode != batchv1.NonIndexedCompletion, "completions", "one pod makes a build"},
		{spec.PodFailurePolicy != nil, "podFailurePolicy", "a build that fails is not repeated"},
		{spec.SuccessPolicy != nil, "successPolicy", "one pod makes a build"},
		{spec.TTLSecondsAfterFinished != nil, "ttlSecondsAfterFinished", "a finished Job holds what the build has yielded; Slipway removes older ones itself"},
		{spec.Suspend != nil && *spec.Suspend, "suspend", "the build would never run"},
		{spec.Selector != nil || spec.ManualSelector != nil, "selector", "Kubernetes makes it"},
		{spec.ManagedBy != nil, "managedBy", "the Job controller of Kubernetes runs builds"},
		{pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyNever, "template.spec.restartPolicy", "a build that fails is not repeated; write Never"},
	} {
		if rule.broken {
			problems = append(problems, fmt.Errorf("has spec.%s: leave it out, since %s", rule.field, rule.why))
		}
	}
	for _, container := range append(pod.InitContainers[:len(pod.InitContainers):len(pod.InitContainers)], pod.Containers...) {
		for _, variable := range container.Env {
			if strings.HasPrefix(variable.Name, ReservedPrefix) {
				problems = append(problems, fmt.Errorf("sets %s in container %s: names that begin with %s are Slipway's own", variable.Name, container.Name,
					ReservedPrefix))
			}
		}
	}
	return problems
}
