package serving

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

func TestSnapshot_ContainsOnlyReferencedAppImages(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: "s1", UID: "u1", Generation: 7, ResourceVersion: "42",
			Labels:      map[string]string{kuscia.LabelAppType: kuscia.AppTypeServing},
			Annotations: map[string]string{kuscia.AnnotationAffinityMode: "none"}},
		Spec: kuscia.KusciaDeploymentSpec{Initiator: "alice", InputConfig: "{}", Parties: []kuscia.Party{
			{DomainID: "alice", AppImageRef: "one"}, {DomainID: "bob", AppImageRef: "missing"},
			{DomainID: "carol", AppImageRef: "one"}}},
	}
	images := map[string]kuscia.AppImageSpec{
		"one":   {Image: kuscia.AppImageInfo{Name: "app", Tag: "v1"}, ConfigTemplates: map[string]string{"a": "b"}},
		"other": {Image: kuscia.AppImageInfo{Name: "other", Tag: "v1"}},
	}
	v := Snapshot(kd, images)
	require.Equal(t, Version{ID: "s1", UID: "u1", AppType: kuscia.AppTypeServing, AffinityMode: "none", Spec: kd.Spec,
		AppImages: map[string]kuscia.AppImageSpec{"one": images["one"]}}, v,
		"an AppImage that no party uses is not part of the version, and a deleted one is absent")

	kd.Spec.Parties[0].AppImageRef = "changed"
	images["one"].ConfigTemplates["a"] = "changed"
	require.Equal(t, "one", v.Spec.Parties[0].AppImageRef, "later changes do not modify a snapshot")
	require.Equal(t, "b", v.AppImages["one"].ConfigTemplates["a"])

	again := kd.DeepCopy()
	again.Spec.Parties[0].AppImageRef, again.Generation, again.ResourceVersion, again.Status.Phase = "one", 8, "43",
		kuscia.PhaseFailed
	images["one"].ConfigTemplates["a"] = "b"
	one, err := v.Digest()
	require.NoError(t, err)
	two, err := Snapshot(again, images).Digest()
	require.NoError(t, err)
	require.Equal(t, one, two, "neither the status nor the generation changes the version")
}
