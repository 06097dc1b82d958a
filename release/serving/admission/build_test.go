package admission_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving/admission"
)

// The catalogue defines the complete pod of a build: every feature that reaches beyond the pod is refused unless the
// party allows it.
func TestCheckBuild(t *testing.T) {
	t.Parallel()
	volume := func(source corev1.VolumeSource) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) { p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	token := volume(
		corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}})
	secret := volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "registry"}})
	projected := volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "registry"}}}}}})
	claim := volume(corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})
	for name, tc := range map[string]struct {
		reason string
		policy admission.Policy
		change func(*corev1.PodSpec)
		says   string
	}{
		"Plain": {"no privileges", admission.Policy{}, func(*corev1.PodSpec) {}, ""},
		"HostPath": {"files of the node are refused", admission.Policy{},
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
			"volume v is of a type that reaches beyond the namespace (rule privileged)"},
		"NFS": {"so are volumes outside of the cluster", admission.Policy{},
			volume(corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}), "rule privileged"},
		"Allowed": {"unless the party allows it", admission.Policy{Privileged: true},
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), ""},
		"HostNetwork": {"the node's network", admission.Policy{}, func(p *corev1.PodSpec) {
			p.HostNetwork = true
		}, "hostNetwork is true (rule privileged)"},
		"HostPID": {"the node's processes", admission.Policy{}, func(p *corev1.PodSpec) {
			p.HostPID = true
		}, "hostPID is true"},
		"Node": {"bypasses the scheduler", admission.Policy{}, func(p *corev1.PodSpec) {
			p.NodeName = "n"
		}, "nodeName is set"},
		"HostPort": {"a port of the node", admission.Policy{}, func(p *corev1.PodSpec) {
			p.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}, "container build: hostPort is set"},
		"PodUnconfined": {"for all containers at once", admission.Policy{}, func(p *corev1.PodSpec) {
			p.SecurityContext =
				&corev1.PodSecurityContext{
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		}, "securityContext.seccompProfile is Unconfined (rule privileged)"},
		"Sysctls": {"the node's kernel", admission.Policy{}, func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "a"}}}
		}, "securityContext.sysctls is set"},
		"InitPrivileged": {"init containers are containers", admission.Policy{}, func(p *corev1.PodSpec) {
			p.InitContainers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, "container clone: securityContext.privileged is true"},
		"InitImage": {"their images are checked, too", admission.Policy{ImagePrefixes: []string{"go"}},
			func(*corev1.PodSpec) {}, "container clone: image git comes from none of go"},
		"Secret": {"a volume reads a Secret", admission.Policy{Secrets: []string{"git"}}, secret,
			"volume v reads Secret registry (rule secrets.allowed)"},
		"Projected": {"so does a projected volume", admission.Policy{Secrets: []string{"git"}}, projected,
			"volume v reads Secret registry"},
		"SecretAllowed": {"a listed Secret is allowed", admission.Policy{Secrets: []string{"registry"}}, secret, ""},
		"AnySecret":     {"without the rule any Secret is allowed", admission.Policy{}, secret, ""},
		"Account": {"another account has other permissions", admission.Policy{}, func(p *corev1.PodSpec) {
			p.ServiceAccountName = "admin"
		}, "serviceAccountName needs service account admin (rule serviceAccounts.allowed)"},
		"OldAccount": {"the deprecated field, too", admission.Policy{}, func(p *corev1.PodSpec) {
			p.DeprecatedServiceAccount = "admin"
		}, "serviceAccountName needs service account admin"},
		"Token": {"the token of the default account", admission.Policy{}, func(p *corev1.PodSpec) {
			p.AutomountServiceAccountToken = new(true)
		}, "automountServiceAccountToken needs service account default"},
		"TokenVolume": {"the token as a volume", admission.Policy{}, token,
			"volume v needs service account default"},
		"TokenAllowed": {"unless the party lists it", admission.Policy{ServiceAccounts: []string{"default"}}, token,
			""},
		"Certificate": {"a certificate of the pod names its account", admission.Policy{}, volume(corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{PodCertificate: &corev1.PodCertificateProjection{SignerName: "x/y"}}}}}),
			"volume v needs service account default (rule serviceAccounts.allowed)"},
		"PullSecret": {"the kubelet reads it for the pod", admission.Policy{Secrets: []string{"git"}},
			func(p *corev1.PodSpec) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}} },
			"imagePullSecrets[0] reads Secret registry (rule secrets.allowed)"},
		"PullSecretAllowed": {"a listed Secret is allowed", admission.Policy{Secrets: []string{"registry"}},
			func(p *corev1.PodSpec) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}} }, ""},
		"Claim": {"other pods' data", admission.Policy{}, claim,
			"volume v is of the type persistentVolumeClaim (rule volumes.allowed)"},
		"ClaimAllowed": {"unless the party lists the type",
			admission.Policy{Volumes: []string{"persistentVolumeClaim"}}, claim, ""},
		"ListedPath": {"a listed type is a privilege all the same", admission.Policy{Volumes: []string{"hostPath"}},
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), "(rule privileged)"},
		"RuntimeClass": {"may be less isolated", admission.Policy{}, func(p *corev1.PodSpec) {
			p.RuntimeClassName = new("native")
		}, "runtimeClassName is set (rule podFields.allowed)"},
		"Tolerations": {"nodes reserved for others", admission.Policy{}, func(p *corev1.PodSpec) {
			p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, "tolerations is set (rule podFields.allowed)"},
		"Priority": {"evicts other pods", admission.Policy{}, func(p *corev1.PodSpec) {
			p.PriorityClassName = "system-node-critical"
		}, "priorityClassName is set (rule podFields.allowed)"},
		"FieldsAllowed": {"unless the party lists them", admission.Policy{
			PodFields: []string{"tolerations", "priorityClassName", "runtimeClassName"}}, func(p *corev1.PodSpec) {
			p.PriorityClassName, p.RuntimeClassName = "high", new("native")
			p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, ""},
		"AnyFeature": {"the engine's own cluster without a policy", admission.Policy{AnyFeature: true},
			func(p *corev1.PodSpec) {
				claim(p)
				p.PriorityClassName = "high"
			}, ""},
		"AnyFeaturePath": {"has no privileges either", admission.Policy{AnyFeature: true},
			volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), "(rule privileged)"},
		"Defaults": {"the API server's own fields", admission.Policy{}, func(p *corev1.PodSpec) {
			p.SchedulerName, p.DNSPolicy, p.RestartPolicy = corev1.DefaultSchedulerName, corev1.DNSClusterFirst,
				corev1.RestartPolicyNever
		}, ""},
		"Scheduler": {"another scheduler has other rules", admission.Policy{}, func(p *corev1.PodSpec) {
			p.SchedulerName = "mine"
		}, "schedulerName is set (rule podFields.allowed)"},
		"Hook": {"the kubelet asks a host", admission.Policy{}, func(p *corev1.PodSpec) {
			p.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}}
		}, "container build: lifecycle.preStop.httpGet.host is set (rule privileged)"},
		"AccountAllowed": {"unless the party lists the account", admission.Policy{ServiceAccounts: []string{"admin"}},
			func(p *corev1.PodSpec) { p.ServiceAccountName = "admin" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}
			job.Spec.Template.Spec = corev1.PodSpec{AutomountServiceAccountToken: new(bool),
				InitContainers: []corev1.Container{{Name: "clone", Image: "git"}},
				Containers:     []corev1.Container{{Name: "build", Image: "go"}}}
			tc.change(&job.Spec.Template.Spec)
			err := tc.policy.CheckBuild(job)
			if tc.says == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.True(t, failure.Is(err, failure.Refused), tc.reason)
			require.ErrorContains(t, err, "the party's policy refuses Job shop/b: ", tc.reason)
			require.ErrorContains(t, err, tc.says, tc.reason)
		})
	}
	policy, wrong := admission.Decode([]byte("serviceAccounts: {allowed: [builder]}\nvolumes: {allowed: [emptyDir]}\n" +
		"podFields: {allowed: [tolerations]}\n"))
	require.NoError(t, wrong.Err())
	require.Equal(t, admission.Policy{ServiceAccounts: []string{"builder"}, Volumes: []string{"emptyDir"},
		PodFields: []string{"tolerations"}}, policy)
	_, wrong = admission.Decode([]byte("podFields: {allowed: [toleration]}\n"))
	require.ErrorContains(t, wrong.Err(), "is not a field of a pod's spec: did you mean tolerations?")
	_, wrong = admission.Decode([]byte("serviceAccounts: {allowed: [Builder]}\n"))
	require.ErrorContains(t, wrong.Err(), "is not the name of a ServiceAccount")
}

// The annotations by which Kubernetes set AppArmor profiles until 1.30 still count.
func TestCheckBuild_ReadsOldAnnotationsOfAppArmor(t *testing.T) {
	t.Parallel()
	for profile, refused := range map[string]bool{"unconfined": true, "custom/x": true, "runtime/default": false,
		"localhost/x": false} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}}
		job.Spec.Template.Annotations = map[string]string{
			corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "build": profile}
		job.Spec.Template.Spec = corev1.PodSpec{AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "build", Image: "go"}}}
		err := admission.Policy{}.CheckBuild(job)
		if !refused {
			require.NoError(t, err, profile)
			continue
		}
		require.ErrorContains(t, err, "container build: the annotation "+
			"container.apparmor.security.beta.kubernetes.io/build is "+profile+" (rule privileged)")
		require.NoError(t, admission.Policy{Privileged: true}.CheckBuild(job))
	}
}
