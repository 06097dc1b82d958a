package source

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Image is a container image, pinned by its digest, on its way to the pods of a workload.
type Image struct {
	// Container is the container that gets it; "": the only one that the workload's pods have.
	Container string `json:"container,omitempty"`
	// Reference is "repository@sha256:<hex>"; "" before it was built.
	Reference string `json:"reference,omitempty"`
}

// String is the image as people read it: "registry.example.com/order@sha256:0123456789ab".
func (i Image) String() string {
	repository, digest, ok := strings.Cut(i.Reference, "@"+digestPrefix)
	if !ok {
		return i.Reference
	}
	return repository + "@" + digestPrefix + digest[:min(len(digest), shownDigest)]
}

// What is what a deploy of it brings, for sentences.
func (i Image) What() string { return "image " + i.String() }

// Marker is the same for two images exactly when pods of one are pods of the other.
func (i Image) Marker() string {
	sum := sha256.Sum256([]byte(i.Container + "\x00" + i.Reference))
	return "image-" + hex.EncodeToString(sum[:])[:32]
}

// Unfit says why the image cannot be put into a pod template, "" when it can.
func (i Image) Unfit(template map[string]any) string {
	names := containerNames(template)
	switch {
	case i.Container == "" && len(names) != 1:
		return fmt.Sprintf("it has the containers %s: say by build.container in the catalogue which one gets the image that is built",
			strings.Join(names, ", "))
	case i.Container != "" && !slices.Contains(names, i.Container):
		return fmt.Sprintf("it has no container %s, which is to get the image that is built: it has %s; name one of them by build.container in "+
			"the catalogue", i.Container, strings.Join(names, ", "))
	}
	return ""
}

// target is the container that gets the image; nil where the template is unfit.
func (i Image) target(template map[string]any) map[string]any {
	if i.Unfit(template) != "" {
		return nil
	}
	for _, c := range objects(template, "spec", "containers") {
		if i.Container == "" || text(c, "name") == i.Container {
			return c
		}
	}
	return nil
}

// StandsIn says whether a pod template is one that the image was put into, and that nobody has changed in what matters since.
func (i Image) StandsIn(template map[string]any) bool {
	return marked(template) == i.Marker() && text(i.target(template), "image") == i.Reference && !fetches(template, "")
}

// Put puts the image into a pod template that it is not unfit for. A code package that is there goes: it would hide what the image holds.
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
