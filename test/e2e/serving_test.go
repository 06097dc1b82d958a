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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// union is an engine with two parties, each a namespace of the home cluster unless they are hosted elsewhere.
type union struct {
	*harness.Engine
	t          *testing.T
	alice, bob string
	// good and better are AppImages that come up, bad is one that does not.
	good, better, bad string
}

func unite(t *testing.T, e *harness.Engine) *union {
	t.Helper()
	u := &union{Engine: e, t: t, alice: e.Namespace(t, "alice"), bob: e.Namespace(t, "bob")}
	u.good, u.better, u.bad = u.image("v1"), u.image("v2"), u.image("bad")
	return u
}

// image registers an AppImage of that tag.
func (u *union) image(tag string) string {
	u.t.Helper()
	name := harness.RandomName("image")
	u.MustKuscia("/api/v1/appimage/create", fmt.Sprintf(`{"name":%q,"image":{"name":"x","tag":%q},"config_templates":{"app.conf":"{\"id\":\"{{.SERVING_ID}}\",\"input\":\"{{.INPUT_CONFIG}}\"}"},
		"deploy_templates":[{"name":"app","replicas":1,"containers":[{"name":"app","config_volume_mounts":[{"mount_path":"/etc/app.conf","sub_path":"app.conf"}],
		"ports":[{"name":"service","protocol":"HTTP","scope":"Cluster"},{"name":"internal","protocol":"HTTP","scope":"Domain"}]}]}]}`, name, tag))
	u.dropAfter(name)
	return name
}

// shaped is an AppImage whose update from one of another shape changes, makes and removes Services, and changes the files.
func (u *union) shaped(tag, protocol, port string) string {
	u.t.Helper()
	name := harness.RandomName("image")
	u.MustKuscia("/api/v1/appimage/create", fmt.Sprintf(`{"name":%q,"image":{"name":"x","tag":%q},"config_templates":{"app.conf":"{\"id\":\"{{.SERVING_ID}}\",\"has\":%s}"},
		"deploy_templates":[{"name":"app","replicas":1,"containers":[{"name":"app","config_volume_mounts":[{"mount_path":"/etc/app.conf","sub_path":"app.conf"}],
		"ports":[{"name":"service","protocol":%q,"scope":"Cluster"},{"name":%q,"protocol":"HTTP","scope":"Domain"}]}]}]}`, name, tag, `\"`+port+`\"`, protocol, port))
	u.dropAfter(name)
	return name
}

// dropAfter deletes an AppImage when the test is over, whatever has become of the server by then.
func (u *union) dropAfter(image string) {
	images := u.Dynamic(u.t).Resource(kuscia.AppImageResource)
	u.t.Cleanup(func() { _ = images.Delete(context.Background(), image, metav1.DeleteOptions{}) })
}

// create asks for a serving of both parties.
func (u *union) create(id string, policy serving.Policy) {
	u.t.Helper()
	u.createOf(id, u.good, u.good, policy)
}

// createOf asks for a serving whose parties run these images.
func (u *union) createOf(id, alices, bobs string, policy serving.Policy) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/create", fmt.Sprintf(`{"serving_id":%q,"serving_input_config":"{\"n\":1}","initiator":%q,"parties":[
		{"domain_id":%q,"app_image":%q,"replicas":2},{"domain_id":%q,"app_image":%q,"replicas":2}]}`, id, u.alice, u.alice, alices, u.bob, bobs))
	u.policy(id, policy)
	u.t.Cleanup(func() { // a shared engine would go on making objects in the parties' namespaces, which go away
		if answer, err := http.Post(u.KusciaURL+"/api/v1/serving/delete", "application/json", strings.NewReader(fmt.Sprintf(`{"serving_id":%q}`, id))); err == nil {
			_ = answer.Body.Close()
		}
	})
}

// policy is what the operations that begin from now on go by.
func (u *union) policy(id string, policy serving.Policy) {
	u.t.Helper()
	raw, err := json.Marshal(policy)
	require.NoError(u.t, err)
	u.Kubectl("annotate", "--overwrite", "kd", id, "-n", u.Home, serving.AnnotationPolicy+"="+string(raw))
}

// update has the parties run these images.
func (u *union) update(id, alices, bobs string) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/update", fmt.Sprintf(`{"serving_id":%q,"parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
		id, u.alice, alices, u.bob, bobs))
}

func (u *union) remove(id string) {
	u.t.Helper()
	u.MustKuscia("/api/v1/serving/delete", fmt.Sprintf(`{"serving_id":%q}`, id))
}

func (u *union) query(id string) queried {
	u.t.Helper()
	var q queried
	require.NoError(u.t, json.Unmarshal(u.MustKuscia("/api/v1/serving/query", fmt.Sprintf(`{"serving_id":%q}`, id)).Data, &q))
	return q
}

// tag is the tag of the image that a party's Deployment runs; "" when there is none.
func (u *union) tag(domain, id string) string {
	u.t.Helper()
	d := u.deployment(domain, id)
	if d == nil {
		return ""
	}
	_, tag, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, ":")
	return tag
}

func (u *union) deployment(domain, id string) *appsv1.Deployment {
	u.t.Helper()
	list, err := u.Kube.AppsV1().Deployments(domain).List(context.Background(), metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=" + id})
	require.NoError(u.t, err)
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// noneOpen waits until no operation on the serving is open.
func (u *union) noneOpen(id string) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		kd := u.Serving(u.Home, id)
		described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), kd.Status.Operation.WorkflowID, "")
		return err != nil || described.GetWorkflowExecutionInfo().GetCloseTime() != nil
	}, harness.Patience, harness.Tick, "a quiet serving has no open workflow")
}

// An update that one party cannot run is taken back in all of them; what went wrong stays in the status until the next good update, which works.
func TestServingUpdateIsAllOrNothing(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.create("fair", serving.Policy{})
	u.WaitServing("fair", "Available", harness.ServingAvailable)
	u.policy("fair", serving.Policy{ProgressDeadlineSeconds: 30})
	u.update("fair", u.better, u.bad)
	u.WaitServing("fair", "bob's pods in trouble", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Phase == kuscia.PhaseProgressing && kd.Status.PartyDeploymentStatuses[u.bob]["fair"].Reason == "ImagePullBackOff"
	})
	kd := u.WaitServing("fair", "the version of before", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "party "+u.bob)
	require.Contains(t, kd.Status.Message, "manifest unknown", "the registry's own word")
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "fair"), u.tag(u.bob, "fair")})
	q := u.query("fair")
	require.Equal(t, "Available", q.Status.State)
	require.Equal(t, serving.ReasonUpdateRolledBack, q.Status.Reason)
	require.Equal(t, u.good, q.Parties[1].AppImage, "a query echoes the version that serves")
	u.Record(serving.WorkflowPrefix("fair")+"1", "serving-created")
	u.Record(kd.Status.Operation.WorkflowID, "serving-rolled-back")
	for _, domain := range []string{u.alice, u.bob} {
		require.Empty(t, u.deployment(domain, "fair").Annotations[workloadops.AnnotationClaimedBy], "nobody holds it any more")
	}

	u.policy("fair", serving.Policy{})
	u.update("fair", u.better, u.better)
	kd = u.WaitServing("fair", "the next good update", harness.ServingAvailable)
	require.Empty(t, kd.Status.Message)
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "fair"), u.tag(u.bob, "fair")})
	u.noneOpen("fair")
	u.Record(kd.Status.Operation.WorkflowID, "serving-update")
	u.remove("fair")
	require.Eventually(t, func() bool {
		return u.Serving(u.Home, "fair") == nil && u.deployment(u.alice, "fair") == nil && u.deployment(u.bob, "fair") == nil
	}, harness.Patience, harness.Tick)
	u.Record(fmt.Sprintf("%s%d", serving.WorkflowPrefix("fair"), kd.Generation+1), "serving-deleted")
}

// What somebody deletes of a party comes back, and a party that loses its pods is shown although nothing is being released.
func TestServingIsKeptWhole(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.create("kept", serving.Policy{})
	u.WaitServing("kept", "Available", harness.ServingAvailable)
	u.noneOpen("kept")
	core, ctx := u.Kube.CoreV1(), t.Context()
	require.NoError(t, core.Services(u.alice).Delete(ctx, "kept-internal", metav1.DeleteOptions{}))
	require.NoError(t, core.ConfigMaps(u.alice).Delete(ctx, "kept-configtemplate", metav1.DeleteOptions{}))
	require.NoError(t, u.Kube.AppsV1().Deployments(u.bob).Delete(ctx, "kept", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := core.Services(u.alice).Get(ctx, "kept-internal", metav1.GetOptions{})
		_, none := core.ConfigMaps(u.alice).Get(ctx, "kept-configtemplate", metav1.GetOptions{})
		return err == nil && none == nil && u.deployment(u.bob, "kept") != nil
	}, harness.Patience, harness.Tick, "what was deleted comes back")
	kd := u.WaitServing("kept", "Available again", harness.ServingAvailable)
	u.Record(kd.Status.Operation.WorkflowID, "serving-recreated")
	u.RecordNewest(workflows.TypeServingStatuses, "serving-statuses")

	_, err := core.ResourceQuotas(u.bob).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		quota, err := core.ResourceQuotas(u.bob).Get(ctx, "none", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0
	}, harness.Patience, harness.Tick)
	require.NoError(t, core.Pods(u.bob).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: kuscia.LabelDeploymentName + "=kept"}))
	kd = u.WaitServing("kept", "a party without pods", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.Phase == kuscia.PhaseProgressing && kd.Status.Reason != ""
	})
	require.Equal(t, 1, kd.Status.AvailableParties)
	require.Equal(t, "FailedCreate", kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "exceeded quota", "it says why no pod comes")
	u.noneOpen("kept")
}

// A newer version takes the place of an operation that is still under way.
func TestServingIsChangedInMidUpdate(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.create("hasty", serving.Policy{})
	u.update("hasty", u.bad, u.bad)
	u.WaitServing("hasty", "trouble", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[u.bob]["hasty"].PodReason == "ImagePullBackOff"
	})
	u.update("hasty", u.better, u.better)
	kd := u.WaitServing("hasty", "the newest version", harness.ServingAvailable)
	u.Record(fmt.Sprintf("%s%d", serving.WorkflowPrefix("hasty"), kd.Generation-1), "serving-superseded")
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "hasty"), u.tag(u.bob, "hasty")})
	u.update("hasty", u.bad, u.bad)
	u.WaitServing("hasty", "trouble", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[u.bob]["hasty"].PodReason == "ImagePullBackOff"
	})
	u.remove("hasty")
	require.Eventually(t, func() bool { return u.Serving(u.Home, "hasty") == nil }, harness.Patience, harness.Tick, "a deletion goes before an update")
	require.Zero(t, leftOf(t, u.Engine, u.alice, "hasty")+leftOf(t, u.Engine, u.bob, "hasty"))
}

// A specification that cannot be run is refused in the status, with everything that is wrong with it, and nothing is made.
func TestServingThatCannotBeRun(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	file := writeFile(t, fmt.Sprintf(`{"apiVersion":"kuscia.secretflow/v1alpha1","kind":"KusciaDeployment","metadata":{"name":"wrong","namespace":%q},
		"spec":{"initiator":%q,"parties":[{"domainID":%q,"appImageRef":%q},{"domainID":%q,"appImageRef":"nowhere"}]}}`, u.Home, u.alice, u.alice, u.good, u.bob))
	u.Kubectl("apply", "-f", file)
	kd := u.WaitServing("wrong", "Failed", func(kd *kuscia.KusciaDeployment) bool { return kd.Status.Phase == kuscia.PhaseFailed })
	require.Equal(t, serving.ReasonValidateFailed, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, `appimages.kuscia.secretflow "nowhere" not found`)
	require.Zero(t, leftOf(t, u.Engine, u.alice, "wrong"))
	require.Equal(t, "Failed", u.query("wrong").Status.State, "a status is there over HTTP too")
	u.Kubectl("delete", "kd", "wrong", "-n", u.Home)
}
