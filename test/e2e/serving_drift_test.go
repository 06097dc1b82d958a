package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// What somebody edits of a party is put back, and the record says who it was; a size that somebody has set stays; who does not give up is not fought for ever.
func TestLongServingPutsBackWhatOthersEdit(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	u := unite(t, harness.Start(t, harness.Options{}))
	u.create("edited", serving.Policy{})
	u.WaitServing("edited", "Available", harness.ServingAvailable)

	u.Kubectl("scale", "deployment", "edited", "-n", u.bob, "--replicas=3")
	u.Kubectl("set", "image", "deployment/edited", "-n", u.bob, "app=x:hacked")
	require.Eventually(t, func() bool { return u.tag(u.bob, "edited") == "v1" }, harness.Patience, harness.Tick, "the image is put back")
	kd := u.WaitServing("edited", "Available again", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingAvailable(kd) && kd.Status.Operation.Kind == serving.KindRecreate
	})
	require.Equal(t, int32(3), *u.deployment(u.bob, "edited").Spec.Replicas, "the size is whoever has set it last")
	require.Equal(t, []string{"kubectl-set"}, managers(kd, u.bob, "edited"))
	u.waitHistory("edited", 2, serving.StateSucceeded)
	require.Contains(t, u.history("edited")[0].Message, "kubectl-set has changed Deployment/edited", "the record says who it was")

	core := u.Kube.CoreV1()
	for _, value := range []string{"hacked once", "hacked twice"} {
		_, err := core.ConfigMaps(u.alice).Patch(t.Context(), "edited-configtemplate", types.MergePatchType, []byte(`{"data":{"app.conf":"`+value+`"}}`),
			metav1.PatchOptions{FieldManager: "somebody"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			files, err := core.ConfigMaps(u.alice).Get(t.Context(), "edited-configtemplate", metav1.GetOptions{})
			return err == nil && !strings.Contains(files.Data["app.conf"], "hacked")
		}, harness.Patience, harness.Tick, "files are put back")
		u.WaitServing("edited", "Available again", harness.ServingAvailable)
	}

	for range 2 {
		u.Kubectl("set", "image", "deployment/edited", "-n", u.bob, "app=x:hacked")
		require.Eventually(t, func() bool { return u.tag(u.bob, "edited") == "v1" }, harness.Patience, harness.Tick)
		u.WaitServing("edited", "Available again", harness.ServingAvailable)
	}
	u.Kubectl("set", "image", "deployment/edited", "-n", u.bob, "app=x:hacked")
	kd = u.WaitServing("edited", "the end of the fight", func(kd *kuscia.KusciaDeployment) bool { return strings.Contains(kd.Status.Message, "stop kubectl-set") })
	require.Equal(t, serving.ReasonObjectsDrifted, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "put back 3 times already")
	require.Equal(t, "hacked", u.tag(u.bob, "edited"), "it waits")
	u.noneOpen("edited")
	u.update("edited", u.better, u.better)
	u.WaitServing("edited", "the new version", harness.ServingAvailable)
	require.Equal(t, "v2", u.tag(u.bob, "edited"), "an update waits for nobody")
	require.Equal(t, int32(3), *u.deployment(u.bob, "edited").Spec.Replicas, "it asks for the same size as before")
}

// managers are those against whom something of a party was put back.
func managers(kd *kuscia.KusciaDeployment, domain, deployment string) (names []string) {
	for _, r := range kd.Status.PartyDeploymentStatuses[domain][deployment].Restorations {
		names = append(names, r.Manager)
	}
	return names
}

// What was deleted and edited while a party's worker was away is put right when it starts.
func TestLongServingIsComparedWhenAWorkerStarts(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	a := ally(t)
	a.work(a.alice, a.bob)
	a.create("left", serving.Policy{})
	a.create("kept", serving.Policy{})
	for _, id := range []string{"left", "kept"} {
		a.WaitServing(id, "Available", harness.ServingAvailable)
	}
	a.workers[a.bob].Kill()
	ours := metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=left"}
	require.NoError(t, a.Kube.AppsV1().Deployments(a.bob).DeleteCollection(t.Context(), metav1.DeleteOptions{}, ours))
	require.NoError(t, a.Kube.CoreV1().ConfigMaps(a.bob).DeleteCollection(t.Context(), metav1.DeleteOptions{}, ours))
	services, err := a.Kube.CoreV1().Services(a.bob).List(t.Context(), ours)
	require.NoError(t, err)
	for _, s := range services.Items {
		require.NoError(t, a.Kube.CoreV1().Services(a.bob).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	}
	a.Kubectl("set", "image", "deployment/kept", "-n", a.bob, "app=x:hacked")
	a.work(a.bob)
	require.Eventually(t, func() bool { return a.tag(a.bob, "left") == "v1" && a.tag(a.bob, "kept") == "v1" }, harness.Patience, harness.Tick)
	for _, id := range []string{"left", "kept"} {
		a.WaitServing(id, "Available again", func(kd *kuscia.KusciaDeployment) bool {
			return harness.ServingAvailable(kd) && kd.Status.Operation.Kind == serving.KindRecreate
		})
		a.noneOpen(id)
	}
}
