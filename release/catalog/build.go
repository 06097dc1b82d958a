package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/json"

	"slipway.io/slipway/release/strictyaml"
)

// CommitPlaceholder stands for the commit in the patterns of a Build.
const CommitPlaceholder = "{{commit}}"

// sampleCommit is what a pattern is tried with.
const sampleCommit = "0123456789abcdef0123456789abcdef01234567"

var placeholder = regexp.MustCompile(`\{\{[^{}]*\}\}`)

func (b Build) check(found *strictyaml.Findings) {
	for _, problem := range jobTemplateProblems(b.JobTemplate.Raw) {
		found.Refuse(0, "build.jobTemplate", "%s", problem)
	}
	unreadable := found.Unreadable("build.image") || found.Unreadable("build.package")
	switch {
	case b.Image == "" && b.Package == "" && !unreadable:
		found.Refuse(0, "build", "yields nothing: name the image that it pushes, or the URL of the package that it makes")
	case b.Image != "" && b.Package != "":
		found.Refuse(0, "build", "names both an image and a package: a build yields one of them")
	}
	if b.Image != "" {
		if err := validPattern(b.Image, validImage); err != nil {
			found.Refuse(0, "build.image", "%s", err)
		}
	}
	if b.Package != "" {
		if err := validPattern(b.Package, func(url string) error { return ValidURL(url, "http", "https") }); err != nil {
			found.Refuse(0, "build.package", "%s", err)
		}
	}
}

// validPattern says what is wrong with a pattern: it must hold {{commit}}, no other placeholder, and be legal once a commit stands in it.
func validPattern(pattern string, legal func(string) error) error {
	for _, found := range placeholder.FindAllString(pattern, -1) {
		if found != CommitPlaceholder {
			return fmt.Errorf("has the placeholder %s, which means nothing here: write %s", strictyaml.Quote(found), CommitPlaceholder)
		}
	}
	filled := strings.ReplaceAll(pattern, CommitPlaceholder, sampleCommit)
	switch {
	case filled == pattern:
		return fmt.Errorf("must hold %s, so that every commit yields something of its own", CommitPlaceholder)
	case strings.ContainsAny(filled, "{}"):
		return fmt.Errorf("has a brace that belongs to no placeholder: write %s", CommitPlaceholder)
	}
	return legal(filled)
}

func validImage(image string) error {
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return fmt.Errorf("is not the name of an image: %w", err)
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
	return problems
}
