package source_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/source"
)

const reference = "registry.test/order@sha256:" + digest

func TestImageIsPutIntoItsContainer(t *testing.T) {
	t.Parallel()
	image := source.Image{Container: "app", Reference: reference}
	in := template(t, plain)
	require.Empty(t, image.UnfitReason(in))
	require.False(t, image.PresentIn(in))
	image.Put(in)
	require.True(t, image.PresentIn(in))
	pod := typed(t, in)
	require.Equal(t, reference, pod.Spec.Containers[1].Image)
	require.Equal(t, "s", pod.Spec.Containers[0].Image)
	require.Equal(t, image.Marker(), pod.Annotations[source.AnnotationDeployed])
	require.Equal(t, "registry.test/order@sha256:9f86d081884c", image.String())
	require.Equal(t, "image registry.test/order@sha256:9f86d081884c", image.Describe())

	in["spec"].(map[string]any)["containers"].([]any)[1].(map[string]any)["image"] = "another:image"
	require.False(t, image.PresentIn(in), "an image set by another client is replaced")
}

func TestImageWithoutContainer_GoesToOnlyContainer(t *testing.T) {
	t.Parallel()
	image := source.Image{Reference: reference}
	require.Equal(t, "it has the containers sidecar, app: set build.container in the catalogue to the one that gets "+
		"the built image", image.UnfitReason(template(t, plain)))
	one := template(t, `{"spec":{"containers":[{"name":"main","image":"a"}]}}`)
	require.Empty(t, image.UnfitReason(one))
	image.Put(one)
	require.True(t, image.PresentIn(one))
	require.Equal(t, reference, typed(t, one).Spec.Containers[0].Image)
	image.Container = "app"
	require.Contains(t, image.UnfitReason(one), "it has no container app for the built image: it has main")
	require.Contains(t, image.UnfitReason(map[string]any{}), "it has no container app")
}

// A code package hides the image's files: a service is deployed by one or the other.
func TestImageReplacesAPackage(t *testing.T) {
	t.Parallel()
	want := template(t, plain)
	image := source.Image{Container: "app", Reference: reference}
	image.Put(want)
	in := template(t, plain)
	pkg := order()
	pkg.Credentials = "order-source"
	pkg.Put(in, fetcher, "https://packages.test/order.zip")
	require.False(t, image.PresentIn(in))
	image.Put(in)
	require.Equal(t, typed(t, want), typed(t, in), "nothing of the package is left")
	pkg.Put(in, fetcher, "https://packages.test/order.zip")
	require.True(t, pkg.PresentIn(in))
	require.False(t, image.PresentIn(in))
	require.Equal(t, reference, typed(t, in).Spec.Containers[1].Image, "a package runs in the existing image")
}

func TestMarker_DiffersForDifferentImages(t *testing.T) {
	t.Parallel()
	image := source.Image{Container: "app", Reference: reference}
	require.NotEqual(t, image.Marker(), source.Image{Container: "app",
		Reference: reference[:len(reference)-1] + "9"}.Marker())
	require.NotEqual(t, image.Marker(), source.Image{Container: "sidecar", Reference: reference}.Marker())
	require.NotEqual(t, image.Marker(), order().Marker())
}
