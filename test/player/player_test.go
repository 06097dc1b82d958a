package player_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/player"
)

// shell is an image whose entry point is a shell.
const shell = "shell:local"

// world is a namespace with a player.
type world struct {
	harness.Stack
	*player.Player
	t         testing.TB
	namespace string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	stack := harness.SharedStack(t)
	namespace := stack.Namespace(t, "player")
	return &world{stack, player.Start(t, stack, player.Options{Namespace: namespace,
		Images: map[string]string{shell: "/bin/sh"}}), t, namespace}
}

// run is a container that runs a script.
func run(name, script string, mounts ...corev1.VolumeMount) corev1.Container {
	return corev1.Container{Name: name, Image: shell, Args: []string{"-c", script}, VolumeMounts: mounts}
}

// marked returns a template of pods for the player with a short grace period by default.
func marked(spec corev1.PodSpec) corev1.PodTemplateSpec {
	if spec.TerminationGracePeriodSeconds == nil {
		grace := int64(2)
		spec.TerminationGracePeriodSeconds = &grace
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "played"}},
		Spec: spec}
	player.Mark(&template.ObjectMeta)
	return template
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func (w *world) pod(name string, spec corev1.PodSpec) {
	w.t.Helper()
	template := marked(spec)
	template.Name = name
	_, err := w.Kube.CoreV1().Pods(w.namespace).Create(w.t.Context(),
		&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// waitPod waits for a pod until is returns true.
func (w *world) waitPod(name, what string, is func(*corev1.Pod) bool) (pod *corev1.Pod) {
	w.t.Helper()
	if !assert.Eventually(w.t, func() bool {
		found, err := w.Kube.CoreV1().Pods(w.namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		pod = found
		return is(pod)
	}, harness.Patience, harness.Tick, "pod %s never reached %s", name, what) {
		w.t.Fatalf("pod %s last was %+v", name, pod.Status)
	}
	return pod
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func (w *world) deployment(name string, replicas int32, spec corev1.PodSpec) {
	w.t.Helper()
	_, err := w.Kube.AppsV1().Deployments(w.namespace).Create(w.t.Context(),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "played"}},
				Template: marked(spec)}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		d, err := w.Kube.AppsV1().Deployments(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == replicas
	}, harness.Patience, harness.Tick, "Deployment %s never became ready", name)
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.Kube.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	return list.Items
}

// TestVolumeOfInitContainer covers the case of a code package: an init container writes into a volume, the container
// mounts a folder of it at another path, and a second container has no process.
func TestVolumeOfInitContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	main := run("main", "cat /app/file; ls /slipway-package; echo ready; sleep 1000",
		corev1.VolumeMount{Name: "package", MountPath: "/app", SubPath: "content"})
	w.deployment("served", 2, corev1.PodSpec{Volumes: []corev1.Volume{emptyDir("package")},
		InitContainers: []corev1.Container{run("fetch",
			"mkdir /slipway-package/content; echo from init >/slipway-package/content/file",
			corev1.VolumeMount{Name: "package", MountPath: "/slipway-package"})},
		Containers: []corev1.Container{main, {Name: "second", Image: "nginx:1"}}})
	pods := w.pods()
	require.Len(t, pods, 2)
	for _, pod := range pods {
		require.Eventually(t, func() bool {
			return strings.Contains(w.Logs(pod.Name, "main"), "ready")
		}, harness.Patience, harness.Tick)
		assert.True(t, strings.HasPrefix(w.Logs(pod.Name, "main"), "from init\n"), w.Logs(pod.Name, "main"))
		assert.Contains(t, w.Logs(pod.Name, "main"), "/slipway-package",
			"the container must not see a volume it does not mount")
		text, err := os.ReadFile(filepath.Join(w.Volume(pod.Name, "package"), "content", "file"))
		require.NoError(t, err)
		assert.Equal(t, "from init\n", string(text))
		assert.Equal(t, "Completed", pod.Status.InitContainerStatuses[0].State.Terminated.Reason)
		assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
		assert.NotEmpty(t, condition(&pod, corev1.PodScheduled).Status, "the scheduler's condition must stay")
	}
}

func (w *world) job(name, script string, policy corev1.RestartPolicy, retries int32) *batchv1.Job {
	w.t.Helper()
	spec := corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{run("work", script)}}
	_, err := w.Kube.BatchV1().Jobs(w.namespace).Create(w.t.Context(),
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: batchv1.JobSpec{BackoffLimit: &retries, Template: marked(spec)}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	var job *batchv1.Job
	require.Eventually(w.t, func() bool {
		job, err = w.Kube.BatchV1().Jobs(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed
		})
	}, harness.Patience, harness.Tick, "Job %s never ended", name)
	return job
}

// TestJobs checks that a Job's result is its termination message, and that its pods run as long as their processes,
// even though the stack's simulated Jobs are short.
func TestJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	done := w.job("done", "sleep 1.5; printf image@sha256:abc >/dev/termination-log", corev1.RestartPolicyNever, 0)
	failed := w.job("failed", "echo no such branch >&2; exit 3", corev1.RestartPolicyNever, 0)
	repeated := w.job("repeated", "[ -e /shared ] || exit 1", corev1.RestartPolicyOnFailure, 1)
	assert.EqualValues(t, 1, done.Status.Succeeded)
	assert.EqualValues(t, 1, failed.Status.Failed)
	assert.Zero(t, repeated.Status.Succeeded, "every run must begin with a new file system")
	for _, pod := range w.pods() {
		switch pod.Labels[batchv1.JobNameLabel] {
		case "done":
			end := pod.Status.ContainerStatuses[0].State.Terminated
			require.NotNil(t, end)
			assert.Equal(t, "image@sha256:abc", end.Message)
			assert.GreaterOrEqual(t, end.FinishedAt.Sub(end.StartedAt.Time), time.Second)
			assert.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
		case "failed":
			end := pod.Status.ContainerStatuses[0].State.Terminated
			require.NotNil(t, end)
			assert.EqualValues(t, 3, end.ExitCode)
			assert.Equal(t, "Error", end.Reason)
			assert.Empty(t, end.Message, "output becomes the message only with terminationMessagePolicy")
			assert.Equal(t, corev1.PodFailed, pod.Status.Phase)
			assert.Equal(t, "no such branch\n", w.Logs(pod.Name, "work"))
		}
	}
}

// TestInitContainerFails checks that a failing init container is reported as on a real node, with the end of its output
// as message, and that the pod continues once it succeeds.
func TestInitContainerFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fetch := run("fetch", "[ -e /volume/there ] || { echo absent; exit 1; }",
		corev1.VolumeMount{Name: "data", MountPath: "/volume"})
	fetch.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	spec := corev1.PodSpec{Volumes: []corev1.Volume{emptyDir("data")}, InitContainers: []corev1.Container{fetch},
		Containers: []corev1.Container{run("main", "sleep 1000")}}
	w.pod("retried", spec)
	pod := w.waitPod("retried", "a crash loop", func(p *corev1.Pod) bool {
		s := p.Status.InitContainerStatuses
		return len(s) == 1 && s[0].RestartCount > 0 && s[0].State.Waiting != nil
	})
	init := pod.Status.InitContainerStatuses[0]
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)
	assert.Equal(t, "CrashLoopBackOff", init.State.Waiting.Reason)
	assert.EqualValues(t, 1, init.LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, "absent\n", init.LastTerminationState.Terminated.Message)
	assert.Equal(t, "PodInitializing", pod.Status.ContainerStatuses[0].State.Waiting.Reason)
	assert.Equal(t, "containers with incomplete status: [fetch]", condition(pod, corev1.PodInitialized).Message)
	require.NoError(t, os.WriteFile(filepath.Join(w.Volume("retried", "data"), "there"), nil, 0o600))
	pod = w.waitPod("retried", "ready", func(p *corev1.Pod) bool {
		return condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	assert.Empty(t, condition(pod, corev1.PodInitialized).Message)

	spec.RestartPolicy = corev1.RestartPolicyNever
	w.pod("given-up", spec)
	pod = w.waitPod("given-up", "its end", ended)
	assert.Equal(t, corev1.PodFailed, pod.Status.Phase)
	assert.Zero(t, pod.Status.InitContainerStatuses[0].RestartCount)
	assert.NotNil(t, pod.Status.ContainerStatuses[0].State.Waiting, "its container must not start")
}

// TestObjectsInPod checks that a container gets values of objects and of its pod in a kubelet's layout, once the
// objects exist.
func TestObjectsInPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := func(name, key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name},
				Key: key}}
	}
	c := run("main",
		`echo "$USER_NAME|$FULL|$POD|$ONE|$(id -u):$(id -g)|$(cat /secret/password)|$(readlink /secret/password)|$(cat /map/sub/one)|$PWD|$(DIRECT)"
touch /secret/more || echo read-only; [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ] && echo token; echo "$0 $1"`)
	c.Args = append(c.Args, "zero", "$(USER_NAME) $$(POD) $(UNKNOWN)")
	c.WorkingDir = "/work-folder"
	c.Env = []corev1.EnvVar{{Name: "USER_NAME", ValueFrom: key("login", "username")},
		{Name: "FULL", Value: "<$(USER_NAME)>"}, {Name: "DIRECT", Value: "echo"},
		{Name: "POD",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	c.EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/secret"}, {Name: "map", MountPath: "/map"}}
	user, group, mode := int64(65532), int64(65533), int32(0o400)
	w.pod("objects", corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{c},
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &group, FSGroup: &group},
		Volumes: []corev1.Volume{
			{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "login",
				DefaultMode: &mode}}},
			{Name: "map",
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
					Items:                []corev1.KeyToPath{{Key: "ONE", Path: "sub/one"}}}}}}})
	pod := w.waitPod("objects", "a missing Secret", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, `"login" not found`)
	})
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)
	_, err := w.Kube.CoreV1().ConfigMaps(w.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"},
			Data: map[string]string{"ONE": "1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.Kube.CoreV1().Secrets(w.namespace).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"},
			StringData: map[string]string{"username": "ann", "password": "p w"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.waitPod("objects", "its end", ended)
	log := w.Logs("objects", "main")
	assert.Contains(t, log, "ann|<ann>|objects|1|65532:65533|p w|..data/password|1|/work-folder|")
	for _, line := range []string{"read-only\n", "token\n", "zero ann $(POD) $(UNKNOWN)\n"} {
		assert.Contains(t, log, line)
	}
}

// TestOwnFileSystemAndProcesses checks that writes of a container are invisible to the machine and to the next run, and
// that its child processes end with it.
func TestOwnFileSystemAndProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := harness.RandomName("written")
	script := fmt.Sprintf("set -e; [ ! -e /etc/%[1]s ]; echo x >/etc/%[1]s; rm -f /etc/passwd; ls /tmp | wc -l; ls "+
		"-d /proc/[0-9]* | wc -l; (exec sleep 4711 %[2]d) & exit 7",
		name, os.Getpid())
	w.pod("alone", corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{run("main", script)}})
	pod := w.waitPod("alone", "its end", ended)
	assert.EqualValues(t, 7, pod.Status.ContainerStatuses[0].State.Terminated.ExitCode, w.Logs("alone", "main"))
	assert.True(t, strings.HasPrefix(w.Logs("alone", "main"), "0\n"), "its /tmp must be empty: %s",
		w.Logs("alone", "main"))
	assert.NoFileExists(t, filepath.Join("/etc", name))
	assert.FileExists(t, "/etc/passwd")
	assert.Empty(t, running(t, fmt.Sprintf("4711\x00%d", os.Getpid())))
}

// running returns the processes whose command line contains this text.
func running(t testing.TB, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), text) {
			found = append(found, string(line))
		}
	}
	return found
}

// TestDeletedPod_EndsWithinGracePeriod checks that a deleted pod can end its process within its grace period, and that
// the pod's object and volume are deleted after that.
func TestDeletedPod_EndsWithinGracePeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	grace := int64(60)
	w.pod("polite", corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Volumes: []corev1.Volume{emptyDir("data")},
		Containers: []corev1.Container{run("main",
			"trap 'sleep 1.5; echo bye; exit 0' TERM; echo ready; while :; do sleep 0.1; done")}})
	grace = 1
	w.pod("deaf", corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{run("main", "trap '' TERM; echo ready; while :; do sleep 0.1; done")}})
	for _, name := range []string{"polite", "deaf"} {
		require.Eventually(t, func() bool {
			return strings.Contains(w.Logs(name, "main"), "ready")
		}, harness.Patience, harness.Tick)
	}
	volume := w.Volume("polite", "data")
	assert.DirExists(t, volume)
	for _, name := range []string{"polite", "deaf"} {
		require.NoError(t, w.Kube.CoreV1().Pods(w.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	require.Eventually(t, func() bool {
		return len(w.pods()) == 0
	}, harness.Patience, harness.Tick, "the pods were never deleted")
	assert.True(t, strings.HasSuffix(w.Logs("polite", "main"), "bye\n"), w.Logs("polite", "main"))
	require.Eventually(t, func() bool {
		_, err := os.Stat(volume)
		return os.IsNotExist(err)
	}, harness.Patience, harness.Tick)
}

// TestManyPods runs fifty pods at a time and checks that no process is left when the player has ended.
func TestManyPods(t *testing.T) {
	t.Parallel()
	mark := fmt.Sprintf("%d", 100000+os.Getpid())
	t.Run("played", func(t *testing.T) {
		w := newWorld(t)
		w.deployment("many", 50, corev1.PodSpec{InitContainers: []corev1.Container{run("first", "true")},
			Containers: []corev1.Container{run("main", "exec sleep "+mark)}})
		require.Eventually(t, func() bool {
			return len(running(t, "sleep\x00"+mark)) == 50
		}, harness.Patience, harness.Tick)
	})
	assert.Empty(t, running(t, mark))
}
