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
	require.Empty(t, image.Unfit(in))
	require.False(t, image.StandsIn(in))
	image.Put(in)
	require.True(t, image.StandsIn(in))
	pod := typed(t, in)
	require.Equal(t, reference, pod.Spec.Containers[1].Image)
	require.Equal(t, "s", pod.Spec.Containers[0].Image)
	require.Equal(t, image.Marker(), pod.Annotations[source.AnnotationDeployed])
	require.Equal(t, "registry.test/order@sha256:9f86d081884c", image.String())
	require.Equal(t, "image registry.test/order@sha256:9f86d081884c", image.What())

	in["spec"].(map[string]any)["containers"].([]any)[1].(map[string]any)["image"] = "somebody:else"
	require.False(t, image.StandsIn(in), "what somebody else has set is replaced")
}

func TestImageFindsTheOnlyContainer(t *testing.T) {
	t.Parallel()
	image := source.Image{Reference: reference}
	require.Equal(t, "it has the containers sidecar, app: say by build.container in the catalogue which one gets the image that is built", image.Unfit(template(t, plain)))
	one := template(t, `{"spec":{"containers":[{"name":"main","image":"a"}]}}`)
	require.Empty(t, image.Unfit(one))
	image.Put(one)
	require.True(t, image.StandsIn(one))
	require.Equal(t, reference, typed(t, one).Spec.Containers[0].Image)
	image.Container = "app"
	require.Contains(t, image.Unfit(one), "it has no container app, which is to get the image that is built: it has main")
	require.Contains(t, image.Unfit(map[string]any{}), "it has no container app")
}

// A code package hides what the image holds: a service is one or the other.
func TestImageReplacesAPackage(t *testing.T) {
	t.Parallel()
	want := template(t, plain)
	image := source.Image{Container: "app", Reference: reference}
	image.Put(want)
	in := template(t, plain)
	pkg := order()
	pkg.Credentials = "order-source"
	pkg.Put(in, fetcher, "https://packages.test/order.zip")
	require.False(t, image.StandsIn(in))
	image.Put(in)
	require.Equal(t, typed(t, want), typed(t, in), "nothing of the package is left")
	pkg.Put(in, fetcher, "https://packages.test/order.zip")
	require.True(t, pkg.StandsIn(in))
	require.False(t, image.StandsIn(in))
	require.Equal(t, reference, typed(t, in).Spec.Containers[1].Image, "a package runs in whatever image is there")
}

func TestMarkersTellImagesApart(t *testing.T) {
	t.Parallel()
	image := source.Image{Container: "app", Reference: reference}
	require.NotEqual(t, image.Marker(), source.Image{Container: "app", Reference: reference[:len(reference)-1] + "9"}.Marker())
	require.NotEqual(t, image.Marker(), source.Image{Container: "sidecar", Reference: reference}.Marker())
	require.NotEqual(t, image.Marker(), order().Marker())
}
