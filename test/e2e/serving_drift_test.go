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

// Edits of a party's objects by another client are reverted, and the record names the client. A size set by another
// client stays. After 3 reverts the engine stops.
func TestLongServing_RevertsEditsByOtherClients_UpToALimit(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	u := newTwoParties(t, harness.Start(t, harness.Options{}))
	u.create("edited", serving.Policy{})
	u.WaitServing("edited", "Available", harness.ServingAvailable)

	u.Kubectl("scale", "deployment", "edited", "-n", u.bob, "--replicas=3")
	u.Kubectl("set", "image", "deployment/edited", "-n", u.bob, "app=x:hacked")
	require.Eventually(t, func() bool {
		return u.tag(u.bob, "edited") == "v1"
	}, harness.Patience, harness.Tick, "the image is reverted")
	kd := u.WaitServing("edited", "Available again", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingAvailable(kd) && kd.Status.Operation.Kind == serving.KindRecreate
	})
	require.Equal(t, int32(3), *u.deployment(u.bob, "edited").Spec.Replicas,
		"the size stays as kubectl scale has set it")
	require.Equal(t, []string{"kubectl-set"}, managers(kd, u.bob, "edited"))
	u.waitHistory("edited", 2, serving.StateSucceeded)
	require.Contains(t, u.history("edited")[0].Message, "kubectl-set has changed Deployment/edited",
		"the record names the client")

	core := u.Kube.CoreV1()
	for _, value := range []string{"hacked once", "hacked twice"} {
		_, err := core.ConfigMaps(u.alice).Patch(t.Context(), "edited-configtemplate", types.MergePatchType,
			[]byte(`{"data":{"app.conf":"`+value+`"}}`),
			metav1.PatchOptions{FieldManager: "somebody"})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			files, err := core.ConfigMaps(u.alice).Get(t.Context(), "edited-configtemplate", metav1.GetOptions{})
			return err == nil && !strings.Contains(files.Data["app.conf"], "hacked")
		}, harness.Patience, harness.Tick, "the files are reverted")
		u.WaitServing("edited", "Available again", harness.ServingAvailable)
	}

	for range 2 {
		u.Kubectl("set", "image", "deployment/edited", "-n", u.bob, "app=x:hacked")
		require.Eventually(t, func() bool { return u.tag(u.bob, "edited") == "v1" }, harness.Patience, harness.Tick)
		u.WaitServing("edited", "Available again", harness.ServingAvailable)
	}
	u.Kubectl("set", "image", "deployment/edited", "-n", u.bob, "app=x:hacked")
	kd = u.WaitServing("edited", "the end of the reverts", func(kd *kuscia.KusciaDeployment) bool {
		return strings.Contains(kd.Status.Message, "stop kubectl-set")
	})
	require.Equal(t, serving.ReasonObjectsDrifted, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "already restored 3 times")
	require.Equal(t, "hacked", u.tag(u.bob, "edited"), "the engine does not revert the edit any more")
	u.waitNoOpenOperation("edited")
	u.update("edited", u.better, u.better)
	u.WaitServing("edited", "the new version", harness.ServingAvailable)
	require.Equal(t, "v2", u.tag(u.bob, "edited"), "an update writes the new version nevertheless")
	require.Equal(t, int32(3), *u.deployment(u.bob, "edited").Spec.Replicas, "the update keeps the size")
}

// managers returns the field managers whose edits of a party were reverted.
func managers(kd *kuscia.KusciaDeployment, domain, deployment string) (names []string) {
	for _, r := range kd.Status.PartyDeploymentStatuses[domain][deployment].Restorations {
		names = append(names, r.Manager)
	}
	return names
}

// Deletions and edits that happen while a party's worker is down are reverted when it starts.
func TestLongServing_RevertsDrift_WhenPartyWorkerStarts(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	a := newPartiesWithWorkers(t)
	a.startWorkers(a.alice, a.bob)
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
	a.startWorkers(a.bob)
	require.Eventually(t, func() bool {
		return a.tag(a.bob, "left") == "v1" && a.tag(a.bob, "kept") == "v1"
	}, harness.Patience, harness.Tick)
	for _, id := range []string{"left", "kept"} {
		a.WaitServing(id, "Available again", func(kd *kuscia.KusciaDeployment) bool {
			return harness.ServingAvailable(kd) && kd.Status.Operation.Kind == serving.KindRecreate
		})
		a.waitNoOpenOperation(id)
	}
}
