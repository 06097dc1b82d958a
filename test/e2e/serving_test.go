package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// twoParties is an engine with two parties, each a namespace of the home cluster unless a test moves them to other
// clusters.
type twoParties struct {
	*harness.Engine
	t          *testing.T
	alice, bob string
	// good and better are AppImages whose pods become ready; the pods of bad do not.
	good, better, bad string
}

func newTwoParties(t *testing.T, e *harness.Engine) *twoParties {
	t.Helper()
	u := &twoParties{Engine: e, t: t, alice: e.Namespace(t, "alice"), bob: e.Namespace(t, "bob")}
	u.good, u.better, u.bad = u.image("v1"), u.image("v2"), u.image("bad")
	return u
}

// image registers an AppImage with that tag and returns its name.
func (u *twoParties) image(tag string) string {
	u.t.Helper()
	name := harness.RandomName("image")
	u.MustKuscia("/api/v1/appimage/create", fmt.Sprintf(
		`{"name":%q,"image":{"name":"x","tag":%q},"config_templates":{"app.conf":"{\"id\":\"{{.SERVING_ID}}\",\"input\":\"{{.INPUT_CONFIG}}\"}"},
		"deploy_templates":[{"name":"app","replicas":1,"containers":[{"name":"app","config_volume_mounts":[{"mount_path":"/etc/app.conf","sub_path":"app.conf"}],
		"ports":[{"name":"service","protocol":"HTTP","scope":"Cluster"},{"name":"internal","protocol":"HTTP","scope":"Domain"}]}]}]}`, name, tag))
	u.deleteAfterTest(name)
	return name
}

// imageOfShape registers an AppImage with that protocol and port. An update from an AppImage of another shape changes,
// creates and deletes Services, and changes the files.
func (u *twoParties) imageOfShape(tag, protocol, port string) string {
	u.t.Helper()
	name := harness.RandomName("image")
	u.MustKuscia("/api/v1/appimage/create", fmt.Sprintf(
		`{"name":%q,"image":{"name":"x","tag":%q},"config_templates":{"app.conf":"{\"id\":\"{{.SERVING_ID}}\",\"has\":%s}"},
		"deploy_templates":[{"name":"app","replicas":1,"containers":[{"name":"app","config_volume_mounts":[{"mount_path":"/etc/app.conf","sub_path":"app.conf"}],
		"ports":[{"name":"service","protocol":%q,"scope":"Cluster"},{"name":%q,"protocol":"HTTP","scope":"Domain"}]}]}]}`, name, tag, `\"`+port+`\"`, protocol, port))
	u.deleteAfterTest(name)
	return name
}

// deleteAfterTest deletes an AppImage at the end of the test. It uses the Kubernetes API, because the server may be
// down by then.
func (u *twoParties) deleteAfterTest(image string) {
	images := u.Dynamic(u.t).Resource(kuscia.AppImageResource)
	u.t.Cleanup(func() { _ = images.Delete(context.Background(), image, metav1.DeleteOptions{}) })
}

// create requests a serving of both parties.
func (u *twoParties) create(id string, policy serving.Policy) {
	u.t.Helper()
	u.createOf(id, u.good, u.good, policy)
}

// createOf requests a serving whose parties run these AppImages.
func (u *twoParties) createOf(id, alices, bobs string, policy serving.Policy) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/create", fmt.Sprintf(
		`{"serving_id":%q,"serving_input_config":"{\"n\":1}","initiator":%q,"parties":[
		{"domain_id":%q,"app_image":%q,"replicas":2},{"domain_id":%q,"app_image":%q,"replicas":2}]}`, id, u.alice, u.alice, alices, u.bob, bobs))
	u.policy(id, policy)
	// otherwise a shared engine would continue to create objects in the parties' namespaces while they are deleted
	u.t.Cleanup(func() {
		if answer, err := http.Post(u.KusciaURL+"/api/v1/serving/delete", "application/json",
			strings.NewReader(fmt.Sprintf(`{"serving_id":%q}`, id))); err == nil {
			_ = answer.Body.Close()
		}
	})
}

// policy sets the policy of the operations that start from now on.
func (u *twoParties) policy(id string, policy serving.Policy) {
	u.t.Helper()
	raw, err := json.Marshal(policy)
	require.NoError(u.t, err)
	u.Kubectl("annotate", "--overwrite", "kd", id, "-n", u.Home, serving.AnnotationPolicy+"="+string(raw))
}

// update requests that the parties run these AppImages.
func (u *twoParties) update(id, alices, bobs string) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/update", fmt.Sprintf(
		`{"serving_id":%q,"parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
		id, u.alice, alices, u.bob, bobs))
}

func (u *twoParties) remove(id string) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/delete", fmt.Sprintf(`{"serving_id":%q}`, id))
}

func (u *twoParties) query(id string) queryAnswer {
	u.t.Helper()
	var q queryAnswer
	require.NoError(u.t, json.Unmarshal(u.MustKuscia("/api/v1/serving/query",
		fmt.Sprintf(`{"serving_id":%q}`, id)).Data, &q))
	return q
}

// tag returns the tag of the image in a party's Deployment; "" if there is no Deployment.
func (u *twoParties) tag(domain, id string) string {
	u.t.Helper()
	d := u.deployment(domain, id)
	if d == nil {
		return ""
	}
	_, tag, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, ":")
	return tag
}

func (u *twoParties) deployment(domain, id string) *appsv1.Deployment {
	u.t.Helper()
	list, err := u.Kube.AppsV1().Deployments(domain).List(context.Background(),
		metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + id})
	require.NoError(u.t, err)
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// waitNoOpenOperation waits until no operation on the serving is open.
func (u *twoParties) waitNoOpenOperation(id string) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		kd := u.Serving(u.Home, id)
		described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), kd.Status.Operation.WorkflowID,
			"")
		return err != nil || described.GetWorkflowExecutionInfo().GetCloseTime() != nil
	}, harness.Patience, harness.Tick, "the workflow of the last operation never closed")
}

// An update that one party cannot run is rolled back in all parties. The status shows the cause until the next
// successful update.
func TestServingUpdate_IsRolledBackEverywhere_WhenOnePartyFails(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("fair", serving.Policy{})
	u.WaitServing("fair", "Available", harness.ServingAvailable)
	u.policy("fair", serving.Policy{ProgressDeadlineSeconds: 30})
	u.update("fair", u.better, u.bad)
	u.WaitServing("fair", "bob's pods in trouble", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Phase == kuscia.PhaseProgressing &&
			kd.Status.PartyDeploymentStatuses[u.bob]["fair"].Reason == "ImagePullBackOff"
	})
	kd := u.WaitServing("fair", "the previous version", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "party "+u.bob)
	require.Contains(t, kd.Status.Message, "manifest unknown", "the message of the registry")
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "fair"), u.tag(u.bob, "fair")})
	q := u.query("fair")
	require.Equal(t, "Available", q.Status.State)
	require.Equal(t, serving.ReasonUpdateRolledBack, q.Status.Reason)
	require.Equal(t, u.good, q.Parties[1].AppImage, "a query shows the serving version")
	for _, domain := range []string{u.alice, u.bob} {
		require.Empty(t, u.deployment(domain, "fair").Annotations[workload.AnnotationClaimedBy],
			"the claim is released")
	}

	u.policy("fair", serving.Policy{})
	u.update("fair", u.better, u.better)
	kd = u.WaitServing("fair", "the next good update", harness.ServingAvailable)
	require.Empty(t, kd.Status.Message)
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "fair"), u.tag(u.bob, "fair")})
	u.waitNoOpenOperation("fair")
	u.remove("fair")
	require.Eventually(t, func() bool {
		return u.Serving(u.Home, "fair") == nil && u.deployment(u.alice, "fair") == nil &&
			u.deployment(u.bob, "fair") == nil
	}, harness.Patience, harness.Tick)
}

// Objects of a party that another client deletes are created again. The status shows a party that loses its pods, also
// without an operation.
func TestServing_RecreatesDeletedObjects_AndShowsLostPods(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("kept", serving.Policy{})
	u.WaitServing("kept", "Available", harness.ServingAvailable)
	u.waitNoOpenOperation("kept")
	core, ctx := u.Kube.CoreV1(), t.Context()
	require.NoError(t, core.Services(u.alice).Delete(ctx, "kept-internal", metav1.DeleteOptions{}))
	require.NoError(t, core.ConfigMaps(u.alice).Delete(ctx, "kept-configtemplate", metav1.DeleteOptions{}))
	require.NoError(t, u.Kube.AppsV1().Deployments(u.bob).Delete(ctx, "kept", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := core.Services(u.alice).Get(ctx, "kept-internal", metav1.GetOptions{})
		_, none := core.ConfigMaps(u.alice).Get(ctx, "kept-configtemplate", metav1.GetOptions{})
		return err == nil && none == nil && u.deployment(u.bob, "kept") != nil
	}, harness.Patience, harness.Tick, "the deleted objects are created again")
	u.WaitServing("kept", "Available again", harness.ServingAvailable)

	_, err := core.ResourceQuotas(u.bob).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		quota, err := core.ResourceQuotas(u.bob).Get(ctx, "none", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0
	}, harness.Patience, harness.Tick)
	require.NoError(t, core.Pods(u.bob).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=kept"}))
	kd := u.WaitServing("kept", "a party without pods", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Phase == kuscia.PhaseProgressing && kd.Status.Reason != ""
	})
	require.Equal(t, 1, kd.Status.AvailableParties)
	require.Equal(t, "FailedCreate", kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "exceeded quota", "the message says why no pod is created")
	u.waitNoOpenOperation("kept")
}

// A newer version supersedes a running operation, and so does a deletion.
func TestServingUpdate_IsSuperseded_ByUpdateOrDeletion(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("hasty", serving.Policy{})
	u.update("hasty", u.bad, u.bad)
	u.WaitServing("hasty", "ImagePullBackOff at bob", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[u.bob]["hasty"].PodReason == "ImagePullBackOff"
	})
	u.update("hasty", u.better, u.better)
	u.WaitServing("hasty", "the newest version", harness.ServingAvailable)
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "hasty"), u.tag(u.bob, "hasty")})
	u.update("hasty", u.bad, u.bad)
	u.WaitServing("hasty", "ImagePullBackOff at bob", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[u.bob]["hasty"].PodReason == "ImagePullBackOff"
	})
	u.remove("hasty")
	require.Eventually(t, func() bool {
		return u.Serving(u.Home, "hasty") == nil
	}, harness.Patience, harness.Tick, "a deletion supersedes an update")
	require.Zero(t, remainingObjects(t, u.Engine, u.alice, "hasty")+remainingObjects(t, u.Engine, u.bob, "hasty"))
}

// A specification that names a missing AppImage fails in the status with that reason, and no object is created.
func TestServing_Fails_WhenAppImageIsMissing(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	file := writeFile(t,
		fmt.Sprintf(
			`{"apiVersion":"kuscia.secretflow/v1alpha1","kind":"KusciaDeployment","metadata":{"name":"wrong","namespace":%q},
		"spec":{"initiator":%q,"parties":[{"domainID":%q,"appImageRef":%q},{"domainID":%q,"appImageRef":"nowhere"}]}}`, u.Home, u.alice, u.alice, u.good, u.bob))
	u.Kubectl("apply", "-f", file)
	kd := u.WaitServing("wrong", "Failed", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Phase == kuscia.PhaseFailed
	})
	require.Equal(t, serving.ReasonValidateFailed, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, `appimages.kuscia.secretflow "nowhere" not found`)
	require.Zero(t, remainingObjects(t, u.Engine, u.alice, "wrong"))
	require.Equal(t, "Failed", u.query("wrong").Status.State, "HTTP shows the same state")
	u.Kubectl("delete", "kd", "wrong", "-n", u.Home)
}
