package source

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/digest"
)

// Image is a container image, pinned by its digest, to be deployed to a workload's pods.
type Image struct {
	// Container is the container that gets it; "": the only container of the workload's pods.
	Container string `json:"container,omitempty"`
	// Reference is "repository@sha256:<hex>"; "" before it was built.
	Reference string `json:"reference,omitempty"`
}

// String returns the image with a shortened digest: "registry.example.com/order@sha256:0123456789ab".
func (i Image) String() string {
	repository, digest, ok := strings.Cut(i.Reference, "@"+digestPrefix)
	if !ok {
		return i.Reference
	}
	return repository + "@" + digestPrefix + digest[:min(len(digest), shownDigest)]
}

// Describe names it in sentences about what a deploy deploys.
func (i Image) Describe() string { return "image " + i.String() }

// Marker returns the same text for two images exactly if their pods are the same.
func (i Image) Marker() string { return "image-" + digest.Of(i.Container, i.Reference)[:32] }

// UnfitReason returns why the image cannot be put into a pod template, "" if it can.
func (i Image) UnfitReason(template map[string]any) string {
	names := containerNames(template)
	switch {
	case i.Container == "" && len(names) != 1:
		return fmt.Sprintf("it has the containers %s: set build.container in the catalogue to the one that gets the "+
			"built image",
			strings.Join(names, ", "))
	case i.Container != "" && !slices.Contains(names, i.Container):
		return fmt.Sprintf("it has no container %s for the built image: it has %s; name one of them by "+
			"build.container in the catalogue", i.Container, strings.Join(names, ", "))
	}
	return ""
}

// target returns the container that gets the image; nil if the template is unfit.
func (i Image) target(template map[string]any) map[string]any {
	if i.UnfitReason(template) != "" {
		return nil
	}
	for _, c := range objects(template, "spec", "containers") {
		if i.Container == "" || text(c, "name") == i.Container {
			return c
		}
	}
	return nil
}

// PresentIn reports whether the image was put into a pod template and no relevant field of it has changed since.
func (i Image) PresentIn(template map[string]any) bool {
	return marked(template) == i.Marker() && text(i.target(template), "image") == i.Reference && !fetches(template, "")
}

// Put puts the image into a pod template for which UnfitReason is "". It removes an existing code package, which would
// hide the image's files.
func (i Image) Put(template map[string]any) {
	removePackage(template)
	ensured(ensured(template, "metadata"), "annotations")[AnnotationDeployed] = i.Marker()
	i.target(template)["image"] = i.Reference
}

func containerNames(template map[string]any) []string {
	var names []string
	for _, c := range objects(template, "spec", "containers") {
		names = append(names, text(c, "name"))
	}
	return names
}
