package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
)

// The accounts of Kubernetes' own controllers.
const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	autoscaler          = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
)

// lockable is a namespace under a guard of its own, without a running engine, and users of it.
type lockable struct {
	*harness.Engine
	guard string
	// doomed is another namespace under the guard.
	doomed string
	// admin has the role admin, and may edit the namespace itself; repairer has the permission override in addition.
	admin, repairer string
}

// An administrator of a namespace gets past the gate in several ways. With the lock, each is refused, unless a cluster
// administrator has granted the permission for it. Kubernetes' own controllers still work.
func TestGuardLock_MakesTheGateAWall(t *testing.T) {
	t.Parallel()
	kruise.Install(t, harness.SharedStack(t).REST)
	harness.SharedStack(t).InstallRollouts(t)
	e := harness.NewWithoutProcesses(t)
	kruise.Start(t, e.REST, e.Apps)
	l := &lockable{Engine: e, guard: harness.RandomName("lock"), doomed: e.Namespace(t, "doomed"),
		admin: harness.RandomName("admin"), repairer: harness.RandomName("repairer")}
	for _, namespace := range []string{l.Apps, l.doomed} {
		harness.LabelNamespace(t, e.Kube, namespace, guard.LabelGuard, "")
	}
	l.grant(t)
	require.Regexp(t, `locked +no: users who may edit workloads can get past the gate`, l.install(t))
	t.Cleanup(func() { runGuardCommand(t, e.Stack, e.Kubeconfig, "remove", "--name", l.guard) })

	t.Run("Unlocked", func(t *testing.T) {
		for name, a := range attacks {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l.with(t).requireSuccess(t, a)
			})
		}
	})
	// last, because it opens the whole namespace
	l.requireSuccess(t, namespaceAttack)
	l.Kubectl("label", "namespace", l.Apps, "slipway.io/guard-")

	out := l.install(t, "--lock")
	require.Regexp(t, `locked +yes: repair, deletion and size 0 need the permission override on releases.slipway.io`,
		out)
	require.Regexp(t, `lock: scale of clonesets.apps.kruise.io +yes +v1 +spec.replicas`, out)
	l.waitLocked(t)
	t.Run("Locked", l.testLocked)
	out = l.install(t)
	require.Contains(t, out, "The lock was removed")
	require.NotContains(t, out, "lock: ", "without the option, the policies of the lock are deleted")
	require.NotContains(t, l.install(t), "The lock was removed", "which is said once")
}

// testLocked runs the cases under the lock.
func (l *lockable) testLocked(t *testing.T) {
	t.Run("Cases", func(t *testing.T) {
		for name, a := range attacks {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l.with(t).requireRefused(t, a)
			})
		}
		t.Run("Namespace", func(t *testing.T) {
			t.Parallel()
			l.with(t).requireRefused(t, namespaceAttack)
		})
		for _, kind := range harness.Kinds {
			t.Run(kind.Title, func(t *testing.T) {
				t.Parallel()
				l.with(t).testLockedKind(t, kind)
			})
		}
		t.Run("Controllers", func(t *testing.T) {
			t.Parallel()
			l.with(t).testControllers(t)
		})
		t.Run("Free", func(t *testing.T) {
			t.Parallel()
			l.with(t).testFreeEdits(t)
		})
	})
	l.with(t).testNamespaceIsDeleted(t)
}

func (l *lockable) with(t *testing.T) *lockable {
	t.Helper()
	out := *l
	out.Engine = l.WithT(t)
	return &out
}

// install installs the guard of the namespaces and returns the output.
func (l *lockable) install(t *testing.T, args ...string) string {
	t.Helper()
	code, out := runGuardCommand(t, l.Stack, l.Kubeconfig, append([]string{"install", "--name", l.guard,
		"--engine-identity", harness.EngineUser, "--namespace-selector",
		fmt.Sprintf("kubernetes.io/metadata.name in (%s,%s)", l.Apps, l.doomed)}, args...)...)
	require.Zero(t, code, out)
	return out
}

// grant makes the users: by the role admin of Kubernetes, and by deploy/rbac/override.yaml.
func (l *lockable) grant(t *testing.T) {
	t.Helper()
	l.Grant(t, "override.yaml", l.Apps)
	l.Kubectl("create", "clusterrole", l.admin, "--verb", "get,patch,update", "--resource", "namespaces",
		"--resource-name", l.Apps)
	t.Cleanup(func() {
		l.Kubectl("delete", "clusterrole", l.admin)
		l.Kubectl("delete", "clusterrolebinding", l.admin)
	})
	l.Kubectl("create", "clusterrolebinding", l.admin, "--clusterrole", l.admin, "--user", l.admin, "--user",
		l.repairer)
	l.Kubectl("-n", l.Apps, "create", "role", "kruise", "--verb", "*", "--resource",
		"clonesets.apps.kruise.io,statefulsets.apps.kruise.io,daemonsets.apps.kruise.io,"+
			"clonesets.apps.kruise.io/scale,statefulsets.apps.kruise.io/scale")
	users := []string{"--user", l.admin, "--user", l.repairer, "--user", harness.EngineUser}
	l.Kubectl(append(users, "-n", l.Apps, "create", "rolebinding", "kruise", "--role", "kruise")...)
	l.Kubectl(append(users, "-n", l.Apps, "create", "rolebinding", "admins", "--clusterrole", "admin")...)
	l.Kubectl("-n", l.Apps, "create", "rolebinding", "repairers", "--clusterrole", "slipway-override-"+l.Apps,
		"--user", l.repairer)
}

// waitLocked waits until the API server has all policies of the lock in force.
func (l *lockable) waitLocked(t *testing.T) {
	t.Helper()
	for _, kind := range harness.Kinds {
		one := newGated(t, l.Engine, kind)
		for _, c := range [][]string{{"annotate", "slipway.io/repair=me"}, {"delete"}, {"scale", "--replicas=0"}} {
			if c[0] == "scale" && kind.Kind == "DaemonSet" {
				continue
			}
			args := append([]string{c[0], kind.GVR.GroupResource().String(), one.name, "--dry-run=server"}, c[1:]...)
			require.Eventually(t, func() bool {
				_, err := l.as(l.admin, "", args...)
				return err != nil
			}, harness.Patience, harness.Tick, "%v is not refused", args)
		}
	}
	require.Eventually(t, func() bool {
		_, err := l.as(l.admin, "", "label", "namespace", l.Apps, "slipway.io/guard=off", "--dry-run=server")
		return err != nil
	}, harness.Patience, harness.Tick, "the namespace's label is not kept")
}

// as runs kubectl in the namespace as a user.
func (l *lockable) as(user, stdin string, args ...string) (string, error) {
	command := exec.Command(l.Binary("kubectl"), append(args, "-n", l.Apps, "--as", user, "--kubeconfig",
		l.Kubeconfig)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// wayPast is a way to move all pods of a workload to a new template without its release.
type wayPast struct {
	reason string
	kind   harness.Kind
	// steps are the commands, with placeholders. The first is the one that the lock refuses.
	steps []string
	// says is the message of the refusal, with placeholders.
	says string
}

const (
	setImage = "set image RESOURCE NAME app=IMAGE"
	// recreate creates the workload with the new image.
	recreate = "create -f -"
	patch    = "patch RESOURCE NAME --type merge -p "
	needs    = ", which a release or a Rollout holds, needs the permission override on releases.slipway.io in " +
		"namespace SPACE"
)

var attacks = map[string]wayPast{
	"Repair": {"The mark with which an operator takes an object over opens the gate.", harness.Deployment,
		[]string{"annotate RESOURCE NAME slipway.io/repair=me", setImage},
		"the guard is locked: the annotation slipway.io/repair on KIND SPACE/NAME needs the permission override on " +
			"releases.slipway.io in namespace SPACE: ask an administrator of the cluster"},
	"Edit": {"Without pods there is nothing to hold.", harness.Deployment,
		[]string{patch + `{"spec":{"replicas":0}}`, setImage, patch + `{"spec":{"replicas":SIZE}}`},
		"the guard is locked: the size 0 of KIND SPACE/NAME" + needs},
	"Scale": {"The same by the subresource, whose objects have no marks.", harness.StatefulSet,
		[]string{"scale RESOURCE NAME --replicas=0", setImage, "scale RESOURCE NAME --replicas=SIZE"},
		"the guard is locked: the size 0 of KIND SPACE/NAME" + needs},
	"Recreate": {"A new workload begins with its template.", harness.Deployment,
		[]string{"delete RESOURCE NAME", recreate}, "the guard is locked: the deletion of KIND SPACE/NAME" + needs},
	"Collection": {"A deletion by labels names no object.", harness.Deployment,
		[]string{"delete --raw /apis/apps/v1/namespaces/SPACE/RESOURCE?labelSelector=target%3DNAME", recreate},
		"the guard is locked: the deletion of KIND SPACE/NAME" + needs},
	"Owner": {"The garbage collector deletes an object whose owner does not exist.", harness.Deployment,
		[]string{patch + `{"metadata":{"ownerReferences":[` +
			`{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"none"}]}}`, recreate},
		"the guard is locked: a new owner of KIND SPACE/NAME" + needs},
	"UpdateType": {"With another update type there is no field that holds.", harness.StatefulSet,
		[]string{patch + `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`, setImage,
			patch + `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`},
		"the guard is locked: an update type other than RollingUpdate of KIND SPACE/NAME" + needs},
}

var namespaceAttack = wayPast{"A namespace with this label is not guarded.", harness.Deployment,
	[]string{"label namespace SPACE slipway.io/guard=off", setImage},
	"the guard is locked: a change of slipway.io/guard of Namespace SPACE, which decides whether it is guarded, " +
		"needs the permission override on releases.slipway.io in namespace SPACE"}

// target is a workload that an attack is for.
type target struct {
	*gated
	manifest string
}

// newTarget creates a workload that a Rollout's label holds.
func (l *lockable) newTarget(t *testing.T, kind harness.Kind) target {
	t.Helper()
	w := newGated(t, l.Engine, kind)
	w.PatchObject(kind, w.name, `{"metadata":{"labels":{"target":"`+w.name+`"}}}`)
	fresh := w.SubjectObject(kind, w.name)
	text, err := yaml.Marshal(fresh.Object)
	require.NoError(t, err)
	return target{w, strings.ReplaceAll(string(text), harness.StableImage(w.name), harness.NewImage(w.name))}
}

// expand replaces the placeholders of a text.
func (w target) expand(text string) string {
	return strings.NewReplacer("RESOURCE", w.kind.GVR.Resource, "KIND", w.kind.Kind, "NAME", w.name, "SPACE", w.Apps,
		"IMAGE", harness.NewImage(w.name), "SIZE", fmt.Sprint(harness.SubjectSize)).Replace(text)
}

func (w target) run(l *lockable, user, step string) (string, error) {
	stdin := ""
	if step == recreate {
		stdin = w.manifest
	}
	return l.as(user, stdin, strings.Fields(w.expand(step))...)
}

// requireSuccess requires that an attack moves all pods.
func (l *lockable) requireSuccess(t *testing.T, a wayPast) {
	t.Helper()
	w := l.newTarget(t, a.kind)
	for _, step := range a.steps {
		var last struct{ out string }
		require.Eventually(t, func() bool { // an object is deleted a moment after its owner
			var err error
			last.out, err = w.run(l, l.admin, step)
			return err == nil
		}, harness.Patience, harness.Tick, "%s: %s: %v", a.reason, step, &last)
	}
	require.Eventually(t, func() bool {
		images := w.images()
		return len(images) == harness.SubjectSize && allEqual(images, harness.NewImage(w.name))
	}, harness.Patience, harness.Tick, "%s: pods are not replaced: without the lock this is possible", a.reason)
}

// requireRefused requires that an attack is refused, that no pod moves, and that a user with the permission may begin
// it.
func (l *lockable) requireRefused(t *testing.T, a wayPast) {
	t.Helper()
	w := l.newTarget(t, a.kind)
	out, err := w.run(l, l.admin, a.steps[0])
	require.Error(t, err, a.reason)
	require.Contains(t, out, w.expand(a.says), a.reason)
	require.Contains(t, strings.ToLower(out), "forbidden", a.reason)
	for _, step := range a.steps[1:] {
		_, _ = w.run(l, l.admin, step) // what is possible of it: the change of the template is, and is held
	}
	w.requireOldPods(harness.SubjectSize)
	allowed := a.steps[0]
	if !strings.Contains(allowed, "--raw") {
		allowed += " --dry-run=server"
	}
	out, err = w.run(l, l.repairer, allowed)
	require.NoError(t, err, "with the permission: %s", out)
}

// images returns the images of the pods of a workload that stay.
func (w target) images() (images []string) {
	pods, err := w.Kube.CoreV1().Pods(w.Apps).List(context.Background(), metav1.ListOptions{
		LabelSelector: "app=" + w.name})
	require.NoError(w.t, err)
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			images = append(images, p.Spec.Containers[0].Image)
		}
	}
	return images
}

func allEqual(all []string, want string) bool {
	for _, one := range all {
		if one != want {
			return false
		}
	}
	return true
}

// testLockedKind checks, for a workload of each kind that a release by the API has claimed and no Rollout names, what
// the lock refuses and what it permits.
func (l *lockable) testLockedKind(t *testing.T, kind harness.Kind) {
	name := harness.RandomName("claimed")
	l.Subject(kind, name, func(object map[string]any) {
		metadata := object["metadata"].(map[string]any)
		metadata["labels"] = map[string]any{"slipway.io/claimed": "true"}
		metadata["annotations"] = map[string]any{"slipway.io/claimed-by": guardHolder}
	})
	resource := kind.GVR.GroupResource().String()
	commands := map[string][]string{
		"the annotation slipway.io/repair on": {"annotate", resource, name, "slipway.io/repair=me"},
		"the deletion of":                     {"delete", resource, name},
	}
	if kind.Kind != "DaemonSet" {
		commands["the size 0 of"] = []string{"patch", resource, name, "--type", "merge", "-p",
			`{"spec":{"replicas":0}}`}
		commands["the size 0 of "] = []string{"scale", resource, name, "--replicas=0"}
	}
	for says, command := range commands {
		out, err := l.as(l.admin, "", command...)
		require.Error(t, err, "%v: %s", command, out)
		require.Contains(t, out, "the guard is locked: "+strings.TrimSpace(says)+" "+kind.Kind+" "+l.Apps+"/"+name)
		for _, user := range []string{l.repairer, harness.EngineUser} {
			out, err = l.as(user, "", append(command, "--dry-run=server")...)
			require.NoError(t, err, "%s: %v: %s", user, command, out)
		}
	}
	if kind.Kind != "DaemonSet" {
		out, err := l.as(l.admin, "", "scale", resource, name, "--replicas=2")
		require.NoError(t, err, "every other size passes: %s", out)
	}
	out, err := l.as(l.admin, "", "label", resource, name, "team=shop")
	require.NoError(t, err, "and so do other edits: %s", out)
	l.Kubectl("-n", l.Apps, "annotate", resource, name, "slipway.io/repair=administrator")
	out, err = l.as(l.admin, "", "annotate", "--overwrite", resource, name, "slipway.io/repair=me")
	require.Error(t, err, "another name in the mark: %s", out)
	out, err = l.as(l.admin, "", "annotate", resource, name, "slipway.io/repair-")
	require.NoError(t, err, "the mark can be removed: %s", out)
}

// testControllers checks that controllers of Kubernetes pass, with their own permissions only.
func (l *lockable) testControllers(t *testing.T) {
	w := l.newTarget(t, harness.Deployment)
	for user, command := range map[string]string{
		garbageCollector:    "delete RESOURCE NAME --dry-run=server",
		namespaceController: "delete RESOURCE NAME --dry-run=server",
	} {
		out, err := w.run(l, user, command)
		require.NoError(t, err, "%s: %s", user, out)
	}
	config := l.Impersonate(autoscaler)
	config.Impersonate.Groups = nil
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	scale, err := kube.AppsV1().Deployments(l.Apps).GetScale(context.Background(), w.name, metav1.GetOptions{})
	require.NoError(t, err)
	scale.Spec.Replicas, scale.ResourceVersion = 0, ""
	_, err = kube.AppsV1().Deployments(l.Apps).UpdateScale(context.Background(), w.name, scale, metav1.UpdateOptions{})
	require.NoError(t, err, "an autoscaler may choose the size 0")

	owner := harness.RandomName("owner")
	l.Kubectl("-n", l.Apps, "create", "configmap", owner)
	uid := strings.TrimSpace(l.Kubectl("-n", l.Apps, "get", "configmap", owner, "-o", "jsonpath={.metadata.uid}"))
	l.PatchObject(w.kind, w.name, fmt.Sprintf(
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}]}}`, owner, uid))
	out, err := l.as(l.admin, "", "delete", "configmap", owner)
	require.NoError(t, err, out)
	w.requireDeleted(l.Apps, "the garbage collector deletes what an owner leaves")
}

// requireDeleted waits until the workload no longer exists.
func (w target) requireDeleted(namespace, why string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.Dynamic(w.t).Resource(w.kind.GVR).Namespace(namespace).Get(context.Background(), w.name,
			metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, harness.Patience, harness.Tick, why)
}

// testFreeEdits checks that the lock is silent about workloads that nothing holds, but for the mark: one that is held
// later could be marked before.
func (l *lockable) testFreeEdits(t *testing.T) {
	name := harness.RandomName("free")
	l.Subject(harness.Deployment, name, nil)
	out, err := l.as(l.admin, "", "annotate", "deployment", name, "slipway.io/repair=me")
	require.Error(t, err, out)
	for _, command := range [][]string{{"scale", "deployment", name, "--replicas=0"},
		{"scale", "deployment", name, "--replicas=1"},
		{"patch", "deployment", name, "-p", `{"spec":{"replicas":0}}`},
		{"label", "namespace", l.Apps, "team=" + name}, {"delete", "deployment", name}} {
		out, err := l.as(l.admin, "", command...)
		require.NoError(t, err, "%v: %s", command, out)
	}
}

// testNamespaceIsDeleted checks that a namespace can be deleted with a workload that a release has claimed.
func (l *lockable) testNamespaceIsDeleted(t *testing.T) {
	w := target{describeGated(t, l.Engine, harness.Deployment), ""}
	object := w.SubjectObject(w.kind, w.name)
	object.SetLabels(map[string]string{"slipway.io/claimed": "true"})
	object.SetNamespace(l.doomed)
	_, err := l.Dynamic(t).Resource(w.kind.GVR).Namespace(l.doomed).Create(context.Background(), object,
		metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, l.Kube.CoreV1().Namespaces().Delete(context.Background(), l.doomed, metav1.DeleteOptions{}))
	w.requireDeleted(l.doomed, "the namespace controller empties a deleted namespace")
}
