package serving_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

func TestMayClaim(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, claim string
		may           bool
	}{
		"free":       {"it has no claim", "", true},
		"own":        {"an attempt is repeated", "serving/s1/3@run", true},
		"own engine": {"an engine continues with its own serving", "serving/s1/2@run@a/uid-a", true},
		"other engine": {"a serving of the same name of another engine is another serving",
			"serving/s1/2@run@b/uid-b", false},
		"other run":       {"a terminated operation is started again", "serving/s1/3@other", true},
		"older":           {"an older operation has given way", "serving/s1/2@run", true},
		"newer":           {"a newer operation has not", "serving/s1/4@run", false},
		"longer number":   {"generations are compared as numbers", "serving/s1/10@run", false},
		"other serving":   {"another serving has claimed it", "serving/s2/1@run", false},
		"longer ID":       {"an ID that starts with s1 is another serving", "serving/s1-x/1@run", false},
		"rollout":         {"a rollout is not interrupted by a serving", "rollout/default/alice/s1@run", false},
		"no number":       {"an invalid generation is not an operation of this serving", "serving/s1/x@run", false},
		"no run":          {"a user may write it like that", "serving/s1/2", true},
		"somebody":        {"it is not a serving's claim", "me", false},
		"nested":          {"a path is not a number", "serving/s1/2/3@run", false},
		"negative number": {"an invalid generation is not an operation of this serving", "serving/s1/-1@run", false},
		"with UID suffix": {"an operation that runs during the deletion of a former serving has the UID in its ID",
			"serving/s1/2-0a1b2c3d@run", true},
		"newer with suffix": {"its generation still counts", "serving/s1/4-0a1b2c3d@run", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.may, serving.MayClaim(tc.claim,
				serving.PartyRequest{ID: "s1", Generation: 3, Claim: "serving/s1/3@run@a/uid-a"}), tc.reason)
		})
	}
}

func TestOwnerOf(t *testing.T) {
	t.Parallel()
	labels := func(controller, id, uid string) map[string]string {
		return map[string]string{kuscia.LabelController: controller, kuscia.LabelDeploymentName: id,
			kuscia.LabelDeploymentUID: uid}
	}
	cases := map[string]struct {
		reason   string
		labels   map[string]string
		expected serving.Owner
	}{
		"ours": {"same serving, same UID", labels(kuscia.ControllerName, "s1", "u1"), serving.OwnerSame},
		"former": {"a deleted serving of that name", labels(kuscia.ControllerName, "s1", "u0"),
			serving.OwnerFormer},
		"other serving":  {"its name differs", labels(kuscia.ControllerName, "s2", "u1"), serving.OwnerForeign},
		"no controller":  {"partly copied labels do not count", labels("", "s1", "u1"), serving.OwnerForeign},
		"without labels": {"an object of another client", nil, serving.OwnerForeign},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.expected, serving.OwnerOf(&metav1.ObjectMeta{Labels: tc.labels}, "s1", "u1"), tc.reason)
		})
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	marked := func(v serving.Version, req serving.PartyRequest) serving.Objects {
		objects, err := serving.Render(v, 0)
		require.NoError(t, err)
		serving.Mark(objects, req, "engine")
		return objects
	}
	req := serving.PartyRequest{Version: "v1", Generation: 3, Claim: "serving/s1/3@run"}
	first := marked(validVersion(), req)
	require.Equal(t, []string{"Service/s1-service", "Service/s1-internal", "ConfigMap/s1-configtemplate"},
		serving.ObjectsOf(first.Deployment))
	require.Equal(t, req.Token(), serving.TokenOf(first.Deployment))
	require.Equal(t, req.Token(), serving.TokenOf(first.ConfigMap))
	require.Equal(t, req.Token(), serving.TokenOf(first.Services[0]))
	require.Equal(t, "v1", first.Deployment.Annotations[serving.AnnotationVersion])
	require.Equal(t, "engine", first.Deployment.Annotations[serving.AnnotationEngine])
	require.Equal(t, req.Claim, first.Deployment.Annotations[workload.AnnotationClaimedBy])
	require.Equal(t, workload.LabelClaimedServing, first.Deployment.Labels[workload.LabelClaimed])
	rollouts, err := k8slabels.Parse(workload.SelectClaimed)
	require.NoError(t, err)
	require.False(t, rollouts.Matches(k8slabels.Set(first.Deployment.Labels)),
		"watches on claims of rollouts do not select it")
	require.NotContains(t, first.Deployment.Spec.Template.Labels, workload.LabelClaimed, "a claim restarts no pod")

	content := func(o serving.Objects) []string {
		all := []string{o.Deployment.Annotations[serving.AnnotationContent],
			o.ConfigMap.Annotations[serving.AnnotationContent]}
		for _, s := range o.Services {
			all = append(all, s.Annotations[serving.AnnotationContent])
		}
		return all
	}
	later := req
	later.Version, later.Generation, later.Claim = "v2", 4, "serving/s1/4@run"
	require.Equal(t, content(first), content(marked(validVersion(), later)),
		"the digest of the content does not depend on the writer")
	other := validVersion()
	other.AppImages["app"].ConfigTemplates["app.conf"] = "other"
	require.NotEqual(t, content(first)[1], content(marked(other, req))[1],
		"other files change the digest of the ConfigMap")
	require.Equal(t, content(first)[2:], content(marked(other, req))[2:], "and not those of the Services")
}
